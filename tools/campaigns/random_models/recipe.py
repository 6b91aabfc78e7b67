"""A random model: what it is made of, and what its tensors hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import IR_VERSION, RefusedError, run_node
from tools.campaigns.random_models.rules import Step, errors_of
from tools.campaigns.random_models.value import Value

__all__ = ["Recipe", "follow", "known_values", "next_values"]

_LARGEST = 1e4  # what is larger overflows float16 soon


@dataclass(frozen=True)
class Recipe:
    """A model and its inputs.

    Attributes:
        opset: Version of ONNX's operators.
        inputs: What the model is run on, by name.
        constants: Initializers, by name.
        nodes: In an order in which they may run.
        outputs: Names of tensors.
    """

    opset: int
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    nodes: tuple[onnx.NodeProto, ...] = ()
    outputs: tuple[str, ...] = ()

    def pruned(self) -> Recipe:
        """The same without what no output needs."""
        needed, kept = set(self.outputs), list[onnx.NodeProto]()
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(names_read([node]))
        return replace(
            self,
            nodes=tuple(reversed(kept)),
            inputs={name: array for name, array in self.inputs.items() if name in needed},
            constants={name: array for name, array in self.constants.items() if name in needed},
        )

    def model(self, types: Mapping[str, Value]) -> onnx.ModelProto:
        """The model; ``types`` tell those of the outputs."""
        graph = helper.make_graph(
            list(self.nodes),
            "random",
            [_info(name, array) for name, array in self.inputs.items()],
            [_info(name, types[name].array) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def names_read(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The tensors that nodes read, those of their subgraphs included."""
    names = set[str]()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                names |= names_read(attribute.g.node)
                names.update(output.name for output in attribute.g.output)
    return names


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def known_values(recipe: Recipe) -> dict[str, Value]:
    """Inputs and constants, exactly."""
    exact = {name: Value(name, array) for name, array in recipe.inputs.items()}
    return exact | {
        name: Value(name, array, is_constant=True) for name, array in recipe.constants.items()
    }


def follow(recipe: Recipe) -> dict[str, Value]:
    """The values of all tensors of a model, computed node by node.

    Raises:
        RefusedError: onnxruntime does not run a node, or a value is not comparable.
    """
    values = known_values(recipe)
    for node in recipe.nodes:
        values |= next_values(node, values, recipe.opset)
    return values


def next_values(node: onnx.NodeProto, values: Mapping[str, Value], opset: int) -> dict[str, Value]:
    """The results that one node makes of the values that it reads.

    Raises:
        RefusedError: onnxruntime does not run it, or a result is not comparable.
    """
    if node.op_type == "If":
        return _branch(node, values, opset)
    if node.op_type == "Loop":
        return _loop(node, values, opset)
    operands = [values[name] if name else None for name in node.input]
    arrays = run_node(node, [None if x is None else x.array for x in operands], opset)
    results = [arrays.get(name) for name in node.output]
    errors = errors_of(Step(node, operands, results, opset))
    made = {
        name: Value(name, array, error)
        for name, array, error in zip(node.output, results, errors, strict=True)
        if name and array is not None
    }
    for value in made.values():
        _require_comparable(value)
    return made


def _require_comparable(value: Value) -> None:
    """Whoever may be anything, or is no number, tells nothing.

    Raises:
        RefusedError: this is such a value.
    """
    array = value.array
    if not np.isfinite(value.error).all():
        raise RefusedError("a result may be anything")
    if array.dtype.kind == "f":
        peak = np.abs(array).max(initial=0)
        if not peak < _LARGEST:
            raise RefusedError("a result is too large")
        if value.error.max(initial=0) > 0.02 * max(float(peak), 1e-3):
            raise RefusedError("a result is too uncertain")


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    found: onnx.GraphProto = next(
        attribute.g for attribute in node.attribute if attribute.name == name
    )
    return found


def _body(graph: onnx.GraphProto, values: Mapping[str, Value], opset: int) -> list[Value]:
    inner = dict(values)
    for tensor in graph.initializer:
        inner[tensor.name] = Value(tensor.name, numpy_helper.to_array(tensor), is_constant=True)
    for node in graph.node:
        inner |= next_values(node, inner, opset)
    return [inner[output.name] for output in graph.output]


def _renamed(names: Sequence[str], values: Sequence[Value]) -> dict[str, Value]:
    return {
        name: Value(name, value.array, value.error)
        for name, value in zip(names, values, strict=True)
    }


def _branch(node: onnx.NodeProto, values: Mapping[str, Value], opset: int) -> dict[str, Value]:
    condition = values[node.input[0]]
    if condition.error.any():
        raise RefusedError("a condition may be anything")
    taken = "then_branch" if condition.array.item() else "else_branch"
    return _renamed(node.output, _body(_graph(node, taken), values, opset))


def _loop(node: onnx.NodeProto, values: Mapping[str, Value], opset: int) -> dict[str, Value]:
    """A loop that ends by its number of trips alone."""
    graph = _graph(node, "body")
    states = [values[name] for name in node.input[2:]]
    scans = list[list[Value]]()
    for trip in range(int(values[node.input[0]].array)):
        header = [np.array(trip), np.array(True)]  # noqa: FBT003 - the condition that goes on
        names = [info.name for info in graph.input]
        known = {name: Value(name, a) for name, a in zip(names[:2], header, strict=True)}
        results = _body(graph, {**values, **known, **_renamed(names[2:], states)}, opset)
        states = results[1 : 1 + len(states)]
        scans.append(results[1 + len(states) :])
    stacked = [
        Value(
            "",
            np.stack([value.array for value in column]),
            np.stack([value.error for value in column]),
        )
        for column in zip(*scans, strict=True)
    ]
    return _renamed(node.output, [*states, *stacked])
