"""Products of bytes that onnxruntime computes exactly, also where it would let pairs saturate."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popc.frontend import with_unsigned_weights
from popc_runtime.format import Array
from tests.support.oracles import run_onnxruntime

_COLUMNS = 64
_ONE, _COARSE = np.float32(1), np.float32(1e4)


def _bytes(kind: Any, *shape: int) -> Array:
    """The largest bytes: every pair of products is beyond 16 bits."""
    return np.full(shape, np.iinfo(kind).max, kind)


def _model(node: onnx.NodeProto, operands: dict[str, Array]) -> onnx.ModelProto:
    """A node whose first operand is the input x, and whose others are initializers."""
    element = helper.np_dtype_to_tensor_dtype(operands["x"].dtype)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", element, operands["x"].shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, name) for name, a in operands.items() if name != "x"],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _node(op_type: str, names: str, domain: str = "") -> onnx.NodeProto:
    return helper.make_node(op_type, names.replace("-", "").split(","), ["y"], domain=domain)


_SUM = 255 * 127 * _COLUMNS
_QUANTISED = "x,one,zero,w,one,w_zero,coarse,zero"
_CASES = [
    pytest.param(_node("MatMulInteger", "x,w"), _SUM, id="matmul-integer"),
    pytest.param(_node("MatMulInteger", "x,w,zero,w_zero"), _SUM, id="with-zeros"),
    pytest.param(_node("MatMulInteger", "x,w,zero,column_zeros"), _SUM, id="zeros-of-columns"),
    pytest.param(_node("QLinearMatMul", _QUANTISED), 207, id="qlinear-matmul"),
    pytest.param(
        _node("MatMulIntegerToFloat", "x,w,one,one,zero", "com.microsoft"), _SUM, id="to-float"
    ),
    pytest.param(_node("QGemm", "x,one,zero,w,one,w_zero", "com.microsoft"), _SUM, id="qgemm"),
]


def _operands(kind: Any) -> dict[str, Array]:
    return {
        "x": _bytes(kind, 3, _COLUMNS),
        "w": _bytes(np.int8, _COLUMNS, 5),
        "one": np.asarray(_ONE),
        "coarse": np.asarray(_COARSE),
        "zero": np.zeros((), kind),
        "w_zero": np.zeros((), np.int8),
        "column_zeros": np.zeros(5, np.int8),
    }


@pytest.mark.parametrize(("node", "wanted"), _CASES)
def test_products_do_not_saturate(node: onnx.NodeProto, wanted: int) -> None:
    operands = _operands(np.uint8)
    (y,) = run_onnxruntime(_model(node, operands), {"x": operands["x"]})
    np.testing.assert_array_equal(y, np.full((3, 5), wanted, y.dtype))


def test_convolutions_do_not_saturate() -> None:
    operands = _operands(np.uint8) | {
        "x": _bytes(np.uint8, 1, _COLUMNS, 3, 3),
        "w": _bytes(np.int8, 5, _COLUMNS, 1, 1),
    }
    model = _model(_node("QLinearConv", _QUANTISED), operands)
    (y,) = run_onnxruntime(model, {"x": operands["x"]})
    np.testing.assert_array_equal(y, np.full((1, 5, 3, 3), 207, np.uint8))


def test_dynamically_quantised_rows_do_not_saturate() -> None:
    operands = _operands(np.uint8) | {"x": np.ones((3, _COLUMNS), np.float32)}
    model = _model(_node("DynamicQuantizeMatMul", "x,w,one", "com.microsoft"), operands)
    (y,) = run_onnxruntime(model, {"x": operands["x"]})
    np.testing.assert_allclose(y, np.full((3, 5), 127 * _COLUMNS), rtol=1e-6)


def test_what_cannot_saturate_stays() -> None:
    signed = _model(_node("MatMulInteger", "x,w,zero,w_zero"), _operands(np.int8))
    assert with_unsigned_weights(signed) == signed
    floats = _model(_node("MatMul", "x,one"), {"x": np.ones((2, 2), np.float32)})
    assert with_unsigned_weights(floats) is floats


def test_bodies_of_control_flow_are_changed_too() -> None:
    operands = _operands(np.uint8)
    model = _model(_node("MatMulInteger", "x,w,zero,w_zero"), operands)
    branch = helper.make_graph(
        [_node("MatMulInteger", "x,w")], "branch", [], [onnx.ValueInfoProto(name="y")]
    )
    condition = helper.make_tensor("", TensorProto.BOOL, (), [True])
    del model.graph.node[:]
    model.graph.node.extend(
        [
            helper.make_node("Constant", [], ["c"], value=condition),
            helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        ]
    )
    (y,) = run_onnxruntime(model, {"x": operands["x"]})
    np.testing.assert_array_equal(y, np.full((3, 5), _SUM))
