"""Floats of eight bits on the device: one byte each, and twice the rate of half precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc.cost import CostReport
from popc.cost.formulas import elementwise, movement
from popc_runtime.format import Array

_ROWS, _DEPTH, _COLUMNS = 512, 2048, 1024
_NARROW: dict[int, Any] = {
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
}


def _product(number: int, scale: float = 0.5) -> onnx.ModelProto:
    """x [512, 2048] by weights [2048, 1024], both quantised unless ``number`` is float16."""
    node, half = helper.make_node, TensorProto.FLOAT16
    dtype = _NARROW.get(number, np.float16)
    weights = [numpy_helper.from_array(np.ones((_DEPTH, _COLUMNS), dtype), "w")]
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    if number in _NARROW:
        zero = helper.make_tensor("z", number, [], [0.0])
        weights += [numpy_helper.from_array(np.array(scale, np.float16), "s"), zero]
        nodes = [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["x8"]),
            node("DequantizeLinear", ["w", "s", "z"], ["w8"]),
            node("MatMul", ["x8", "w8"], ["y"]),
        ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", half, [_ROWS, _DEPTH])], [value("y", half, [_ROWS, _COLUMNS])],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _estimate(number: int, target: str = "c600", scale: float = 0.5) -> CostReport:
    options = {"target": target, "partials_type_matmuls": "half"}
    return popc.estimate(_product(number, scale), options=options)


def _cycles(report: CostReport, op_type: str) -> int:
    return sum(op.cycles.compute for op in report.ops if op.op_type == op_type)


def _convolving(report: CostReport) -> int:
    return sum(
        phase.compute for op in report.ops for phase in op.phases if phase.name == "convolve"
    )


@pytest.mark.parametrize("number", [TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ])
def test_products_take_eight_bits(number: int) -> None:
    narrow, half = _estimate(number), _estimate(TensorProto.FLOAT16)
    assert _cycles(narrow, "CastThenPow2Scale") == 0
    tiles, peak = narrow.target.compute_tiles, 256  # operations of a tile in a cycle
    least = 2 * _ROWS * _DEPTH * _COLUMNS / (tiles * peak)
    assert least < _convolving(narrow) < 0.6 * _convolving(half)
    bytes_ = [report.memory[0].average.variables for report in (narrow, half)]
    assert bytes_[0] == pytest.approx(bytes_[1] / 2, rel=0.01)


def _scaled_product(op_type: str, exponent: int) -> onnx.ModelProto:
    """PopART's product of x, converted, by weights that are stored in eight bits."""
    node, value = helper.make_node, helper.make_tensor_value_info
    tail = [1, 1] if op_type == "Conv" else []
    shapes = ([_ROWS, _DEPTH, *tail], [_ROWS, _COLUMNS, *tail])
    weights = np.ones([_COLUMNS, _DEPTH, *tail] if tail else [_DEPTH, _COLUMNS])
    graph = helper.make_graph(
        [
            node("Pow2ScaleThenCast", ["x"], ["x8"], domain="ai.graphcore", to="FLOAT8_143"),
            node(op_type, ["x8", "w", "e"], ["sums"]),
            node("Relu", ["sums"], ["y"]),
        ],
        "g",
        [value("x", TensorProto.FLOAT16, shapes[0])],
        [value("y", TensorProto.FLOAT16, shapes[1])],
        [
            numpy_helper.from_array(weights.astype(ml_dtypes.float8_e4m3fnuz), "w"),
            numpy_helper.from_array(np.array(exponent, np.int32), "e"),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("op_type", ["MatMul", "Conv"])
@pytest.mark.parametrize("exponent", [0, 3, -14])
@pytest.mark.parametrize("batches", [1, 4])
def test_products_of_a_loop_take_eight_bits(op_type: str, exponent: int, batches: int) -> None:
    """Weights stay beside their product, which gives halves: nothing is converted."""
    options = {"target": "c600", "partials_type_matmuls": "half", "batches_per_step": batches}
    report = popc.estimate(_scaled_product(op_type, exponent), options=options)
    assert _cycles(report, "CastThenPow2Scale") == _cycles(report, "Cast") == 0
    once = _convolving(_estimate(TensorProto.FLOAT8E4M3FNUZ))
    assert _convolving(report) == pytest.approx(once, rel=0.05)  # of one iteration
    assert report.memory[0].average.variables < 1.1 * _DEPTH * _COLUMNS / 1472


@pytest.mark.parametrize(
    ("number", "target", "scale"),
    [
        (TensorProto.FLOAT8E4M3FNUZ, "gc200", 0.5),
        (TensorProto.FLOAT8E4M3FNUZ, "c600", 0.3),
        (TensorProto.FLOAT8E4M3FN, "c600", 0.5),
    ],
    ids=["chip", "scale", "format"],
)
def test_what_a_chip_does_not_multiply_is_converted(number: int, target: str, scale: float) -> None:
    """Other chips, scales that are no powers of two, formats that are not the chip's."""
    wide = _estimate(number, target, scale)
    half = _estimate(TensorProto.FLOAT16, target)
    assert _cycles(wide, "CastThenPow2Scale") > 0
    assert _cycles(wide, "MatMul") == _cycles(half, "MatMul")


@pytest.mark.parametrize(
    ("source", "result", "cycles"),
    [("quarter", "half", 100), ("half", "quarter", 100), ("quarter", "quarter", 650)],
)
def test_casts(source: str, result: str, cycles: int) -> None:
    """poplibs' figures: 1 cycle for four halves, 2 for eight quarters, 13 for eight."""
    elements = 6 * 400
    assert elementwise.cast(source, result, elements) == 12 + 6 * (18 + 19 + cycles)


def _layers(count: int, size: int = 256) -> onnx.ModelProto:
    """Products of x [64, size], made narrow, by weights and exponents of their own, and Relu."""
    node, rng = helper.make_node, np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for layer in range(count):
        narrow, w, e, y = (f"{what}{layer}" for what in "nwey")
        numbers = (rng.standard_normal((size, size)) * size**-0.5).astype(np.float32)
        weights += [
            numpy_helper.from_array(numbers.astype(ml_dtypes.float8_e4m3fnuz), w),
            numpy_helper.from_array(np.array(layer % 2, np.int32), e),
        ]
        nodes += [
            node("Pow2ScaleThenCast", [x], [narrow], domain="ai.graphcore", to="FLOAT8_143"),
            node("MatMul", [narrow, w, e], [f"{y}.sums"]),
            node("Relu", [f"{y}.sums"], [y]),
        ]
        x = y
    value, half = helper.make_tensor_value_info, TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes, "g", [value("x", half, [64, size])], [value(x, half, [64, size])], weights
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_products_of_functions_take_eight_bits(tmp_path: Path) -> None:
    """What is called takes weights as they are stored; each scale has a function of its own."""
    options = {"target": "c600", "partials_type_matmuls": "half", "outline_threshold": 0.0}
    model = _layers(6)
    plain, outlined = (
        popc.estimate(model, options={**options, "enable_outlining": flag})
        for flag in (False, True)
    )
    assert any(op.op_type == "Call" for op in outlined.ops)
    assert _cycles(outlined, "CastThenPow2Scale") == 0
    assert _convolving(outlined) == _convolving(plain)
    assert outlined.memory[0].average.variables < 1.1 * plain.memory[0].average.variables
    feeds = {"x": np.random.default_rng(1).standard_normal((64, 256)).astype(np.float16)}
    results: list[Array] = []
    for flag in (False, True):
        popc.compile(model, options={**options, "enable_outlining": flag}).save(
            path := tmp_path / f"{flag}.popx"
        )
        results += popc_runtime.load(path).run(feeds).values()
    np.testing.assert_array_equal(results[0], results[1])


def _cast_copies(columns: int) -> int:
    """Cycles of copies of probabilities that a cast to eight bits has written."""
    node, half = helper.make_node, TensorProto.FLOAT16
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            node("MatMul", ["a", "b"], ["scores"]),
            node("Softmax", ["scores"], ["p"]),
            node("Pow2ScaleThenCast", ["p"], ["y"], domain="ai.graphcore", to="FLOAT8_143"),
        ],
        "g",
        [value("a", half, [16, 729, 72]), value("b", half, [16, 72, columns])],
        [value("y", TensorProto.FLOAT8E4M3FNUZ, [16, 729, columns])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.graphcore", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    report = popc.estimate(model, options={"target": "c600", "partials_type_matmuls": "half"})
    cast = next(op for op in report.ops if op.op_type == "Pow2ScaleThenCast")
    return sum(phase.compute for phase in cast.phases if phase.name == "rows")


def test_narrow_rows_that_begin_within_words_move_once_more() -> None:
    """A recorded profile: eight rows of 729 bytes take 52,333 cycles behind their cast."""
    assert _cast_copies(736) == 0
    assert _cast_copies(729) == pytest.approx(52_333, rel=0.02)


@pytest.mark.parametrize("side", [8, 16, 32])
def test_bytes_are_transposed_by_eight(side: int) -> None:
    """poplibs' vertex: 24 instructions for 64 bytes, which six workers share."""
    count = 6 * 100
    cycles = movement.transpose_cycles(count * side * side, side, side, 1)
    blocks = 100 * (side // 8) ** 2
    assert 24 * blocks < cycles / 6 < (24 + 5 + 18) * blocks + 40
    assert cycles < movement.copy_cycles((count * side * side, 1)) / 5
