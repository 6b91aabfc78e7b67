"""Time of recurrent layers beside onnxruntime, with one thread and with two.

python -m benchmarks.recurrent [REGULAR_EXPRESSION]
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popc_runtime
from benchmarks.rivals import onnxruntime_turn
from benchmarks.subjects import Subject
from benchmarks.timing import compare_times, geometric_mean
from popc_runtime.format import Array

_GATES = {"LSTM": 4, "GRU": 3}
_TYPES = ("float32", "float16", "int8")  # of the weights
_TURN = 0.02  # seconds
_ROUNDS = 3


@dataclass(frozen=True)
class Layer:
    """One layer, as wide as its input."""

    op_type: str
    directions: int
    batch: int
    hidden: int
    weights: str

    @property
    def steps(self) -> int:
        """More where a step is short."""
        return 100 if self.hidden < 64 else 50 if self.hidden < 256 else 20

    @property
    def name(self) -> str:
        """A line of the table begins with it."""
        direction = "bidirectional" if self.directions == 2 else "forward"
        size = f"batch {self.batch} hidden {self.hidden} steps {self.steps}"
        return f"{self.op_type} {self.weights} {direction} {size}"

    def subject(self) -> Subject:
        """The model with its input."""
        x = np.random.default_rng(0).standard_normal((self.steps, self.batch, self.hidden))
        return Subject(self.name, self._model().SerializeToString(), {"x": x.astype(np.float32)})

    def _model(self) -> onnx.ModelProto:
        shape = (self.steps, self.batch, self.hidden)
        nodes, weights, operands = (self._bytes if self.weights == "int8" else self._floats)()
        quantised = self.weights == "int8"
        attributes: dict[str, Any] = {
            "domain": "com.microsoft" if quantised else "",
            "hidden_size": self.hidden,
            "direction": "bidirectional" if self.directions == 2 else "forward",
        }
        if self.op_type == "GRU":
            attributes["linear_before_reset"] = 1
        op_type = "DynamicQuantizeLSTM" if quantised else self.op_type
        layer = helper.make_node(op_type, ["x", *operands], ["y"], **attributes)
        graph = helper.make_graph(
            [*nodes, layer],
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            weights,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _values(self, *shape: int) -> Array:
        values = np.random.default_rng(len(shape)).standard_normal(shape, np.float32)
        return values / np.float32(self.hidden**0.5)

    def _floats(self) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[str]]:
        """W, R and B, or halves that become floats."""
        rows = _GATES[self.op_type] * self.hidden
        shapes = {"w": (rows, self.hidden), "r": (rows, self.hidden), "b": (2 * rows,)}
        arrays = {name: self._values(self.directions, *shape) for name, shape in shapes.items()}
        if self.weights == "float32":
            return [], [numpy_helper.from_array(a, n) for n, a in arrays.items()], list(arrays)
        halves = [
            numpy_helper.from_array(a.astype(np.float16), f"{n}_half") for n, a in arrays.items()
        ]
        casts = [helper.make_node("Cast", [f"{n}_half"], [n], to=TensorProto.FLOAT) for n in arrays]
        return casts, halves, list(arrays)

    def _bytes(self) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], list[str]]:
        """Weights as onnxruntime quantises them: a scale for each matrix."""
        rows = 4 * self.hidden
        arrays: dict[str, Array] = {"b": self._values(self.directions, 2 * rows)}
        for name in "wr":
            values = self._values(self.directions, self.hidden, rows)
            scale = np.abs(values).max(axis=(1, 2)) / np.float32(127)
            quotients = np.rint(values / scale[:, None, None])
            arrays |= {name: quotients.astype(np.int8), f"{name}_scale": scale}
            arrays[f"{name}_zero"] = np.zeros(self.directions, np.int8)
        operands = ["w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
        return [], [numpy_helper.from_array(a, n) for n, a in arrays.items()], operands


def layers() -> Iterator[Layer]:
    """All combinations; there is no operator for a quantised GRU."""
    sizes = product(_GATES, _TYPES, (1, 2), (1, 4, 16, 64), (32, 128, 256, 512))
    for op_type, weights, directions, batch, hidden in sizes:
        if op_type == "LSTM" or weights != "int8":
            yield Layer(op_type, directions, batch, hidden, weights)


def main(pattern: str = "") -> None:
    """Print a line for each layer that matches, and the geometric means of the ratios."""
    print(f"{'':58}{'1 thread':>12}{'ratio':>10}{'2 threads':>12}{'ratio':>10}", flush=True)
    ratios: list[tuple[float, float]] = []
    for layer in layers():
        if not re.search(pattern, layer.name):
            continue
        one, one_ratio, two, two_ratio = _measure(layer)
        ratios.append((one_ratio, two_ratio))
        figures = f"{one:9.0f} us{one_ratio:10.2f}{two:9.0f} us{two_ratio:10.2f}"
        print(f"{layer.name:58}{figures}", flush=True)
    if ratios:
        one_mean, two_mean = (geometric_mean(column) for column in zip(*ratios, strict=True))
        print(f"{'geometric mean':58}{one_mean:22.2f}{two_mean:22.2f}")


def _measure(layer: Layer) -> tuple[float, float, float, float]:
    """Microseconds of popc and their ratio to onnxruntime's: with one thread, with two."""
    subject = layer.subject()
    turns: list[Callable[[], object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = subject.compile().save(Path(folder) / "layer.popx")
        for threads in (1, 2):
            turns.append(partial(popc_runtime.load(path, threads=threads).run, subject.feeds))
            turns.append(onnxruntime_turn(subject, threads))
    times = [1e6 * time.best for time in compare_times(turns, rounds=_ROUNDS, seconds=_TURN)]
    return times[0], times[0] / times[1], times[2], times[2] / times[3]


if __name__ == "__main__":
    main(*sys.argv[1:2])
