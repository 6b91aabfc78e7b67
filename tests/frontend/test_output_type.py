"""The type that a node wants its result to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

_RNG = np.random.default_rng(0)
_W = _RNG.standard_normal((64, 3))
_X = _RNG.standard_normal((2, 64))


def _model(dtype: Any, result: int, wanted: str, op_type: str = "MatMul") -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x", "w"], ["y"], name="product")
    if wanted:
        node.attribute.append(helper.make_attribute("__output_type", wanted))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 64])],
        [helper.make_tensor_value_info("y", result, [2, 3])],
        [numpy_helper.from_array(_W.astype(dtype), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _run(model: onnx.ModelProto, tmp_path: Any, dtype: Any, **options: Any) -> Array:
    path = popc.compile(model, options=options).save(tmp_path / "m.popx", force=True)
    return popc_runtime.load(path).run({"x": _X.astype(dtype)})["y"]


def test_half_operands_give_a_float(tmp_path: Any) -> None:
    """The sum is not rounded."""
    y = _run(_model(np.float16, onnx.TensorProto.FLOAT, "FLOAT"), tmp_path, np.float16)
    assert y.dtype == np.float32
    exact = _X.astype(np.float16).astype(np.float64) @ _W.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


def test_float_operands_give_a_half(tmp_path: Any) -> None:
    model = _model(np.float32, onnx.TensorProto.FLOAT16, "")
    rule = {"nodes": "*", "output_type": "half"}
    y = _run(model, tmp_path, np.float32, annotate=[rule])
    plain = _run(_model(np.float32, onnx.TensorProto.FLOAT, ""), tmp_path, np.float32)
    np.testing.assert_array_equal(y, plain.astype(np.float16))


@pytest.mark.parametrize(
    ("op_type", "wanted", "message"),
    [("MatMul", "DOUBLE", "must be one of FLOAT, HALF"), ("Gather", "HALF", "not for Gather")],
)
def test_mistakes_are_reported(op_type: str, wanted: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        popc.compile(_model(np.float32, onnx.TensorProto.FLOAT, wanted, op_type))
    assert message in "\n".join([caught.value.message, *caught.value.details])
