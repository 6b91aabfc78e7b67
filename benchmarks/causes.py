"""Micro-models whose costs one mechanism decides, beside what the vendor's figures give for them.

`python -m benchmarks.predictions` prints them.  The figures are those of poplibs' estimators, of
recorded profiles, or follow from the hardware alone; `docs/costs.md` says where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, prod
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.cost import CostReport
from popc.target import find_target

__all__ = ["cause_rows"]

_HALF: Final = TensorProto.FLOAT16
_OPTIONS: Final = {"target": "ipu2"}
_TILE: Final = find_target("ipu2").tile
_TILES: Final = _TILE.count
_WORKERS: Final = _TILE.worker_contexts

# Name, figure, what the model says.
_Row = tuple[str, float, float]


def cause_rows() -> Iterator[_Row]:
    """One row for each mechanism."""
    for cause in _CAUSES:
        yield cause()


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    dtype: int = _HALF,
) -> onnx.ModelProto:
    starts, ends = [
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in values.items()]
        for values in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "cause", starts, ends, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _cycles(report: CostReport, op_type: str, phase: str) -> int:
    """Cycles of compute sets of a name."""
    phases = (item for op in report.ops if op.op_type == op_type for item in op.phases)
    return sum(item.compute for item in phases if item.name == phase)


def _power() -> _Row:
    """x ** 3 is a square and a product: 2 and 3 cycles for 4 halves (popops)."""
    share = 600
    shape = [_TILES, share]
    three = {"three": np.array(3, np.float16)}
    node = helper.make_node("Pow", ["x", "three"], ["y"])
    report = popc.estimate(_model([node], {"x": shape}, {"y": shape}, three), options=_OPTIONS)
    vectors = ceil(share / _WORKERS / 4)
    figure = _WORKERS * (17 + 2 * vectors + 26 + 3 * vectors) + 20 + 11
    found = sum(phase.compute for op in report.ops for phase in op.phases)
    return "1: cube of 600 halves a tile, cycles", figure, found


def _scores() -> _Row:
    """Rows of 729 scores of 16 heads, of which a recorded profile tells the copy."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    inputs = {"q": [16, 729, 72], "k": [16, 72, 729]}
    report = popc.estimate(_model(nodes, inputs, {"y": [16, 729, 729]}), options=_OPTIONS)
    return "2: scores of 729 tokens copied to rows", 126_283, _cycles(report, "Softmax", "rows")


def _training(nodes: Sequence[onnx.NodeProto], **others: Any) -> CostReport:
    optimizer = {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9}
    return popc.estimate(
        _model(nodes, **others),
        options=_OPTIONS,
        loss={"type": "l1", "input": "y"},
        optimizer=optimizer,
    )


def _weights_gradient() -> _Row:
    """A tile multiplies 32 halves a cycle at most if they add up as floats."""
    shape = [16, 64, 56, 56]
    weights = {"w": np.ones((64, 64, 3, 3), np.float16)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    report = _training([node], inputs={"x": shape}, outputs={"y": shape}, weights=weights)
    least = prod(shape) * 64 * 9 / (32 * _TILES)
    found = _cycles(report, "ConvWeightsGrad", "convolve")
    return "3: weight gradient of a convolution, cycles at least", least, found


def _scatter() -> _Row:
    """Temporary data, of which a tile may have six tenths; all updates of a column are 3 MB."""
    size, rows, lookups = 768, 30_522, 4096
    weights = {"table": np.ones((rows, size), np.float16)}
    node = helper.make_node("Gather", ["table", "indices"], ["y"])
    model = _model([node], {}, {"y": [lookups, size]}, weights)
    index = helper.make_tensor_value_info("indices", TensorProto.INT32, [lookups])
    model.graph.input.append(index)
    loss = {"type": "l1", "input": "y"}
    optimizer = {"type": "sgd", "learning_rate": 0.1}
    report = popc.estimate(model, options=_OPTIONS, loss=loss, optimizer=optimizer)
    found = max(op.temporary_bytes for op in report.ops)
    return "4: gradient of a lookup, temporary bytes at most", 0.6 * _TILE.memory_bytes, found


def _momentum() -> _Row:
    """Weights and their momenta, once each."""
    size = 2048
    weights = {"w": np.ones((size, size), np.float16)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    shapes = {"inputs": {"x": [64, size]}, "outputs": {"y": [64, size]}}
    report = _training([node], weights=weights, **shapes)
    found = report.memory[0].average.variables * _TILES
    return "5: weights and momenta of SGD, bytes", 2 * 2 * size * size, found


def _regrouping() -> _Row:
    """A copy: a convolution of floats leaves sixteens, and the next takes eights."""
    shape = [4, 64, 56, 56]
    weights = {name: np.ones((64, 64, 1, 1), np.float32) for name in "vw"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["h"]),
        helper.make_node("Conv", ["h", "w"], ["y"]),
    ]
    model = _model(nodes, {"x": shape}, {"y": shape}, weights, TensorProto.FLOAT)
    report = popc.estimate(model, options=_OPTIONS)
    phases = [phase for phase in report.ops[-2].phases if phase.name == "transform"]
    copy = 587 + 0.4404 * 4 * ceil(prod(shape) / _TILES)
    return "7: floats between convolutions, cycles", copy, sum(phase.compute for phase in phases)


def _overlap() -> _Row:
    """Transfers of ten batches: all but the first load and the last store pass meanwhile."""
    weights = {"w": np.ones((4096, 4096), np.float16)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = _model([node], {"x": [8, 4096]}, {"y": [8, 4096]}, weights)
    options = {
        **_OPTIONS,
        "num_io_tiles": 64,
        "batches_per_step": 10,
        "exchange_strategies": {"*": "overlap_inner_loop"},
        "tile_sets": {"*": "io"},
    }
    report = popc.estimate(model, options=options)
    hidden = report.hidden / max(report.hidden + report.cycles.host, 1)
    return "8: transfers of ten batches on io tiles, percent hidden", 90, 100 * hidden


_CAUSES: Final[Sequence[Callable[[], _Row]]] = (
    _power,
    _scores,
    _weights_gradient,
    _scatter,
    _momentum,
    _regrouping,
    _overlap,
)
