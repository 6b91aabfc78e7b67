"""Constants of two and of four bits: what dequantises them reads bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import popc
import popc_runtime
from popc.frontend import find_unsupported, load_model
from popc_runtime.errors import ModelError, UnsupportedOpError
from popc_runtime.format import Array
from tests.support.oracles import run_model, run_onnxruntime

_T: Final = TensorProto
_RANGES: Final[dict[int, tuple[int, int]]] = {
    _T.INT2: (-2, 2),
    _T.UINT2: (0, 4),
    _T.INT4: (-8, 8),
    _T.UINT4: (0, 16),
}
_X: Final = np.random.default_rng(5).normal(size=(3, 6)).astype(np.float32)


def _narrow(name: str, kind: int, shape: tuple[int, ...]) -> onnx.TensorProto:
    """Every number of a type, in turn."""
    count = int(np.prod(shape))
    numbers = np.resize(np.arange(*_RANGES[kind]), count)
    return helper.make_tensor(name, kind, shape, numbers.tolist())


def _model(
    text: str, constants: list[onnx.TensorProto], opset: int, result: str = "float[3, 7] y"
) -> onnx.ModelProto:
    graph = f"g (float[3, 6] x) => ({result}) {{ {text} }}"
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(header + graph)
    model.graph.initializer.extend(constants)
    return model


def _scales(*shape: int) -> onnx.TensorProto:
    numbers = np.linspace(0.5, 1.5, int(np.prod(shape)))
    return helper.make_tensor("s", _T.FLOAT, shape, numbers.tolist())


def _check(model: onnx.ModelProto) -> None:
    (expected,) = run_onnxruntime(model, {"x": _X})
    (found,) = run_model(model, {"x": _X})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _computed(path: str) -> Array:
    found: Array = popc_runtime.load(popc.compile(path).save(path + ".popx")).run({"x": _X})["y"]
    return found


@pytest.mark.parametrize("kind", _RANGES, ids=_T.DataType.Name)
@pytest.mark.parametrize("names", ["w, s", "w, s, z"])
@pytest.mark.parametrize(
    ("attributes", "scales"), [("axis = 1", (7,)), ("axis = 0, block_size = 2", (3, 7))]
)
def test_dequantised(kind: int, names: str, attributes: str, scales: tuple[int, ...]) -> None:
    constants = [_narrow("w", kind, (6, 7)), _scales(*scales), _narrow("z", kind, scales)]
    text = f"d = DequantizeLinear <{attributes}> ({names}) y = MatMul (x, d)"
    _check(_model(text, constants, 25 if kind in (_T.INT2, _T.UINT2) else 21))


def test_moved_to_where_they_are_computed() -> None:
    text = """
        t = Transpose <perm = [1, 0]> (w) u = Unsqueeze (t, zero) v = Reshape (u, shape)
        i = Identity (v) d = DequantizeLinear <axis = 1> (i, s) y = MatMul (x, d)
    """
    shape = helper.make_tensor("shape", _T.INT64, [2], [6, 7])
    zero = helper.make_tensor("zero", _T.INT64, [1], [0])
    model = _model(text, [_narrow("w", _T.INT4, (6, 7)), _scales(7), shape, zero], 21)
    reference = ReferenceEvaluator(model)  # onnxruntime's Reshape does not take them
    expected = np.asarray(next(iter(reference.run(None, {"x": _X}))))
    np.testing.assert_allclose(run_model(model, {"x": _X})[0], expected, rtol=1e-5, atol=1e-5)


def test_constant_nodes_and_subgraphs(tmp_path: Path) -> None:
    """Branches read a weight from outside, and one of their own."""
    text = """
        m = ReduceMax <keepdims = 0> (x) zero = Constant <value = float {0}> ()
        c = Greater (m, zero)
        f = If (c) <
            then_branch = a () => (float[6, 7] p) { p = DequantizeLinear <axis = 1> (w, s) },
            else_branch = b () => (float[6, 7] q) { q = DequantizeLinear <axis = 1> (v, s) }
        > y = MatMul (x, f)
    """
    model = _model(text, [_narrow("w", _T.INT4, (6, 7)), _scales(7)], 21)
    branch = next(node for node in model.graph.node if node.op_type == "If").attribute[1].g
    held = _narrow("", _T.UINT4, (6, 7))
    branch.node.insert(0, helper.make_node("Constant", [], ["v"], value=held))
    (expected,) = run_onnxruntime(model, {"x": _X})
    onnx.save(model, tmp_path / "model.onnx")
    found = _computed(str(tmp_path / "model.onnx"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [_T.INT4, _T.UINT4], ids=_T.DataType.Name)
@pytest.mark.parametrize("names", ["w, i, s", "w, i, s, z"])
def test_gathered_rows(kind: int, names: str) -> None:
    text = f"""
        i = Cast <to = 7> (x)
        y = com.microsoft.GatherBlockQuantized <block_size = 16, quantize_axis = 1> ({names})
    """
    constants = [_narrow("w", kind, (6, 40)), _scales(6, 3), _narrow("z", kind, (6, 3))]
    _check(_model(text, constants, 21, "float[3, 6, 40] y"))


def _external(folder: Path, data: bytes) -> str:
    model = _model(
        "d = DequantizeLinear <axis = 1> (w, s) y = MatMul (x, d)",
        [_narrow("w", _T.INT4, (6, 7)), _scales(7)],
        21,
    )
    weight = model.graph.initializer[0]
    weight.ClearField("int32_data")
    weight.data_location = _T.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    (folder / "weights").write_bytes(data)
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def test_external_data(tmp_path: Path) -> None:
    packed = np.resize(np.array([0x98, 0xBA, 0xDC, 0xFE, 0x10, 0x32, 0x54, 0x76], np.uint8), 21)
    inside = _model(
        "d = DequantizeLinear <axis = 1> (w, s) y = MatMul (x, d)",
        [_narrow("w", _T.INT4, (6, 7)), _scales(7)],
        21,
    )
    (expected,) = run_model(inside, {"x": _X})
    path = _external(tmp_path, packed.tobytes())
    np.testing.assert_array_equal(_computed(path), expected)


def test_too_few_bytes(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="21"):
        popc.compile(_external(tmp_path, bytes(20)))
    model = _model("y = DequantizeLinear (w, s)", [_scales(1)], 21)
    model.graph.initializer.add(name="w", data_type=_T.INT4, dims=[3], raw_data=b"1")
    with pytest.raises(ModelError, match="needs 2 bytes, but has 1"):
        popc.compile(model)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("y = Cast <to = 1> (w)", "float[6, 6] y"),
        ("t = Transpose (w) d = DequantizeLinear (w, s) y = Cast <to = 1> (t)", "float[6, 6] y"),
        ("y = Identity (w)", "int4[6, 6] y"),
    ],
)
def test_what_else_reads_them_is_refused(text: str, result: str) -> None:
    model = _model(text, [_narrow("w", _T.INT4, (6, 6)), _scales(1)], 21, result)
    assert [row.concerns_type for row in find_unsupported(load_model(model))]
    with pytest.raises(UnsupportedOpError, match="int4"):
        popc.compile(model)
