"""The models that are measured: trained ones, image networks with random weights, small ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import popc
from popc_runtime.format import Array
from samples.fetch_models import FetchError, catalogue, fetch
from samples.published import bert_base, mobilenet_v2
from tests.zoo.inputs import INPUTS
from tests.zoo.light import NAMES, light_model, picture

__all__ = ["Subject", "branching", "perceptron", "synthetic", "tiny_additions", "trained"]


@dataclass(frozen=True)
class Subject:
    """A model with what is needed to compile and run it; ``bind`` also feeds onnxruntime."""

    name: str
    model: Path | bytes
    feeds: dict[str, Array]
    shapes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    bind: dict[str, Any] = field(default_factory=dict[str, Any])
    batch: int | None = None  # the size of a dimension of that name, if the model has one

    def compile(self, **options: Any) -> popc.Archive:
        """The archive of the model."""
        dims = {} if self.batch is None else {"batch": self.batch}
        return popc.compile(
            self.model, shapes=self.shapes, bind=self.bind, dims=dims, options=options
        )


def trained(names: Collection[str] | None = None) -> Iterator[Subject]:
    """The models of samples/models.toml, or those of ``names``; tells which cannot be fetched."""
    for name, entry in catalogue().items():
        if names is not None and name not in names:
            continue
        try:
            path = fetch(name)
        except FetchError as error:
            print(f"skipped: {name} cannot be fetched: {error}")
            continue
        yield Subject(name, path, INPUTS[name](), entry["shapes"], entry.get("bind", {}))


def synthetic(*, quick: bool) -> Iterator[Subject]:
    """Models made on the spot."""
    for rows in (1, 4):
        x = np.random.default_rng(0).normal(size=(rows, 768)).astype(np.float32)
        yield Subject(f"mlp batch {rows}", perceptron(rows), {"x": x})
    tokens = np.arange(128, dtype=np.int64)[None]
    ones = np.ones_like(tokens)
    words = {"tokens": tokens, "types_of_tokens": 0 * tokens, "mask": ones}
    bert = bert_base(layers=3 if quick else 12).SerializeToString()
    yield Subject("bert base, 3 layers" if quick else "bert base", bert, words, batch=1)
    mobilenet = mobilenet_v2().SerializeToString()
    yield Subject("mobilenet v2", mobilenet, {"image": picture()}, batch=1)
    for name in ("light_resnet50",) if quick else NAMES:
        model = light_model(name)
        weights = {tensor.name for tensor in model.graph.initializer}
        (x_name,) = (value.name for value in model.graph.input if value.name not in weights)
        yield Subject(name, model.SerializeToString(), {x_name: picture()})


def perceptron(rows: int, widths: Sequence[int] = (768, 3072, 3072, 768)) -> bytes:
    """Layers from one width to the next, with Relu between them."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        scale = np.float32((2 / inputs) ** 0.5)
        values = random.standard_normal((inputs, outputs), np.float32) * scale
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        weights.append(numpy_helper.from_array(np.full(outputs, 0.1, np.float32), f"b{i}"))
        source = f"r{i - 1}" if i else "x"
        nodes.append(helper.make_node("Gemm", [source, f"w{i}", f"b{i}"], [f"g{i}"]))
        nodes.append(helper.make_node("Relu", [f"g{i}"], [f"r{i}"]))
    return _model(nodes, weights, (rows, widths[0]), nodes[-1].output[0])


def _chain(length: int, make: Callable[[int], tuple[str, list[str]]], constants: int) -> bytes:
    """``length`` nodes one after another; ``make`` gives type and further inputs of each."""
    nodes: list[onnx.NodeProto] = []
    for i in range(length):
        op_type, others = make(i)
        source = f"t{i - 1}" if i else "x"
        nodes.append(helper.make_node(op_type, [source, *others], [f"t{i}"]))
    weights = [
        numpy_helper.from_array(np.full(8, 1 + i / 1000, np.float32), f"c{i}")
        for i in range(constants)
    ]
    return _model(nodes, weights, (1, 8), f"t{length - 1}")


def tiny_additions(count: int) -> bytes:
    """``count`` additions of eight numbers, each to the result of the one before."""
    return _chain(count, lambda i: ("Add", [f"c{i}"]), count)


def branching(count: int) -> bytes:
    """``count`` ops of many types whose results are read again later."""

    def make(i: int) -> tuple[str, list[str]]:
        if i % 4 == 3:
            return "Add", [f"t{max(i - 3 - i % 50, 0)}"]
        return ("Mul", [f"c{i % 100}"]) if i % 4 == 1 else (("Tanh", "Neg")[i % 4 // 2], [])

    return _chain(count, make, 100)


def _model(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    shape: tuple[int, ...],
    output: str,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "synthetic",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=output)],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model
