"""Cycles of single layers beside those that Poplar's own model of an IPU gives them.

    python -m benchmarks.layers            families of layers
    python -m benchmarks.layers --all      every layer

`vendor_layers.csv` has the figures that Graphcore keeps in the tests of its libraries
(github.com/graphcore/poplibs, tests/benchmark_results.csv, IpuModel2), for the layers that
tests/CMakeLists.txt there describes: sums are 32 bits wide, and what is not of kind "product" is a
step of training, which is forward, both gradients and the update of the weights.  It models phases
as this project does, but not the launch of vertices, and no conflicts of exchanges.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc.compiler import plan_program
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest

__all__ = ["Layer", "cycles_of", "deviations", "read_layers"]

_LAYERS: Final = Path(__file__).with_name("vendor_layers.csv")
_DTYPES: Final = {"half": np.float16, "float": np.float32}
# The loss, and what moves data between host and chip; Poplar's figures have neither.
_BESIDE: Final = {"HostLoad", "HostStore", "Mul", "ReduceSum"}
_OTHER_UPDATES: Final = {"UpdatedVar___x", "UpdatedVar___dy"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, and the cycles that Poplar's model gives it.

    Attributes:
        kind: "product" with a matrix added, "dense" or "conv"; the last two with their training.
        rows: Of a product; the batch of a convolution.
        field: Height and width of a convolution's input.
        pads_ends: Whether what is padded is padded at the end of each axis, too.
    """

    kind: str
    type: str
    groups: int
    rows: int
    field: tuple[int, int]
    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: int
    pads: tuple[int, int]
    pads_ends: bool
    cycles: int

    @property
    def family(self) -> str:
        """Layers that are planned alike."""
        if self.kind != "conv":
            return f"{self.kind}, {self.type}"
        if self.groups > 1:
            return "conv, depthwise"
        if self.inputs < 8:
            return "conv of images"
        return "conv 1x1" if self.kernel == (1, 1) else "conv"

    def __str__(self) -> str:
        if self.kind != "conv":
            groups = f"{self.groups} x " if self.groups > 1 else ""
            return f"{self.kind}, {self.type}: {groups}{self.rows} x {self.inputs} x {self.outputs}"
        field = f"{self.rows} x {self.inputs} x {self.field[0]} x {self.field[1]}"
        return f"{self.family}: {field}, {self.outputs} of {self.kernel}, stride {self.stride}"


def read_layers(path: Path = _LAYERS) -> list[Layer]:
    """The layers of a file with a line for each."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_layer(row) for row in csv.DictReader(file)]


def _layer(row: dict[str, str]) -> Layer:
    def number(name: str) -> int:
        return int(row[name] or 0)

    return Layer(
        row["kind"],
        row["type"],
        number("groups"),
        number("rows"),
        (number("height"), number("width")),
        number("inputs"),
        number("outputs"),
        (number("kernel_height"), number("kernel_width")),
        number("stride"),
        (number("pad_rows"), number("pad_columns")),
        bool(number("pads_ends")),
        number("cycles"),
    )


def cycles_of(layer: Layer, target: str = "ipu2") -> int:
    """The cycles of a layer by popc's model."""
    training: dict[str, Any] = {}
    if layer.kind != "product":
        training = {
            "loss": {"type": "identity", "input": "loss"},
            "optimizer": {"type": "sgd", "learning_rate": 0.01},
        }
    request = CompileRequest.of(_model(layer), options={"target": target}, **training)
    report = costs_of(plan_program(request, request.load()))
    layer_ops = (op for op in report.ops if op.op_type not in _BESIDE)
    return sum(op.cycles.total for op in layer_ops if str(op.name) not in _OTHER_UPDATES)


def _model(layer: Layer) -> onnx.ModelProto:
    """The layer; what it reads lies on the chip already, as in a network."""
    lead = (layer.groups,) if layer.groups > 1 else ()
    if layer.kind == "product":
        return _product(layer)
    if layer.kind == "dense":
        shapes = (*lead, layer.rows, layer.inputs), (*lead, layer.inputs, layer.outputs)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return _trained(node, *shapes, (*lead, layer.rows, layer.outputs), layer.type)
    ends = layer.pads if layer.pads_ends else (0, 0)
    axes = zip(layer.field, layer.kernel, layer.pads, ends, strict=True)
    field = [(size + before + after - k) // layer.stride + 1 for size, k, before, after in axes]
    node = helper.make_node(
        "Conv",
        ["x", "w"],
        ["y"],
        group=layer.groups,
        pads=[*layer.pads, *ends],
        strides=[layer.stride] * 2,
    )
    shapes = (
        (layer.rows, layer.inputs, *layer.field),
        (layer.outputs, layer.inputs // layer.groups, *layer.kernel),
    )
    return _trained(node, *shapes, (layer.rows, layer.outputs, *field), layer.type)


def _product(layer: Layer) -> onnx.ModelProto:
    dtype = _DTYPES[layer.type]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    product = helper.make_node("MatMul", ["a", "b"], ["ab"])
    graph = helper.make_graph(
        [product, helper.make_node("Add", ["ab", "c"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("a", kind, (layer.rows, layer.inputs))],
        [helper.make_tensor_value_info("y", kind, (layer.rows, layer.outputs))],
        [
            numpy_helper.from_array(np.zeros((layer.inputs, layer.outputs), dtype), "b"),
            numpy_helper.from_array(np.zeros((layer.rows, layer.outputs), dtype), "c"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _trained(
    node: onnx.NodeProto, x: Sequence[int], w: Sequence[int], y: Sequence[int], type_: str
) -> onnx.ModelProto:
    """A model whose gradient by the layer's result is the variable ``dy``."""
    dtype = _DTYPES[type_]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node,
        helper.make_node("Mul", ["y", "dy"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [],
        [helper.make_tensor_value_info("loss", kind, ())],
        [
            numpy_helper.from_array(np.ones(shape, dtype), name)
            for shape, name in ((x, "x"), (w, "w"), (y, "dy"))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def deviations(layers: Iterable[Layer]) -> dict[str, list[float]]:
    """Ratios of popc's cycles to the vendor's, less one, by family."""
    found: dict[str, list[float]] = {}
    for layer in layers:
        found.setdefault(layer.family, []).append(cycles_of(layer) / layer.cycles - 1)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cycles of layers beside Poplar's model.")
    parser.add_argument("--all", action="store_true", help="every layer")
    if parser.parse_args().all:
        for layer in read_layers():
            ours = cycles_of(layer)
            print(f"{ours:9,} {layer.cycles:9,} {ours / layer.cycles - 1:+7.1%}  {layer}")
        return
    print(f"{'family':18}{'layers':>7}{'mean':>8}{'mean size':>11}{'least':>8}{'most':>8}")
    for family, off in deviations(read_layers()).items():
        average = exp(mean(log(1 + value) for value in off)) - 1
        size = mean(map(abs, off))
        print(f"{family:18}{len(off):7}{average:+8.1%}{size:11.1%}{min(off):+8.1%}{max(off):+8.1%}")


if __name__ == "__main__":
    main()
