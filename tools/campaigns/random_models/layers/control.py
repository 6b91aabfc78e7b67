"""Branches and loops whose bodies are layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx
from onnx import helper

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers import (
    elementwise,
    images,
    movement,
    reductions,
    sequences,
)
from tools.campaigns.random_models.layers.common import Layer
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]

_INNER = (
    *elementwise.LAYERS,
    *movement.LAYERS,
    *reductions.LAYERS,
    *images.LAYERS,
    *sequences.LAYERS,
)


def _grow(builder: Builder, most: int) -> None:
    for _ in range(builder.number(1, most)):
        try:
            builder.choice(_INNER)(builder)
        except RefusedError:
            continue


def _info(value: Value) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.array.dtype)
    return helper.make_tensor_value_info(value.name, kind, value.shape)


def _shaped(builder: Builder, like: Value) -> Value:
    """A result of the body of the type of ``like``."""
    made = [builder.get(name) for name in builder.pool]
    fitting = [x for x in made if x.shape == like.shape and x.array.dtype == like.array.dtype]
    source = fitting[-1].name if fitting else like.name
    kind = builder.choice(["Tanh", "Relu", "Neg", "Sigmoid"])
    return builder.emit(kind, [source])[0]


def _branch(builder: Builder) -> None:
    """Either of two bodies; the model's input decides, or a constant."""
    x = builder.pick_float()
    chosen = np.array(builder.chance(0.5))
    condition = builder.constant(chosen) if builder.chance(0.3) else builder.add_input(chosen)
    bodies = {}
    for name in ("then_branch", "else_branch"):
        with builder.nested() as nodes:
            _grow(builder, 3)
            result = _shaped(builder, x)
            renamed = _finish(nodes, [result], builder.name(name) + "_")
        bodies[name] = helper.make_graph(nodes, name, [], renamed)
    output = builder.name("t0_")
    node = helper.make_node("If", [condition], [output], **bodies)
    builder.keep(*builder.add_node(node))


def _finish(
    nodes: list[onnx.NodeProto], results: Sequence[Value], prefix: str
) -> list[onnx.ValueInfoProto]:
    """Give all tensors of a body names of their own; the outputs."""
    own = {name: prefix + name for node in nodes for name in node.output if name}
    for node in nodes:
        node.input[:] = [own.get(name, name) for name in node.input]
        node.output[:] = [own.get(name, name) for name in node.output]
    infos = [_info(value) for value in results]
    for info in infos:
        info.name = own[info.name]
    return infos


def _loop(builder: Builder) -> None:
    """A body on a state and on what lies outside, some times; it returns a slice of each."""
    x = builder.pick_float()
    trips = np.array(builder.number(1, 3))
    known = builder.chance(0.6)  # else there are no slices: how many, only a run could tell
    count = builder.constant(trips) if known else builder.add_input(trips)
    prefix = builder.name("body") + "_"
    with builder.nested() as nodes:
        state = Value(f"{prefix}state", x.array, x.error)
        for name, array in (("trip", np.array(0)), ("goes_on", np.array(1, np.bool_))):
            builder.values[prefix + name] = Value(prefix + name, array)
        builder.values[state.name] = state
        builder.pool.append(state.name)
        _grow(builder, 3)
        result = _shaped(builder, state)
        scan = builder.emit("Identity", [result.name])[0]
        going = builder.emit("Identity", [f"{prefix}goes_on"])[0]
        infos = [_info(builder.get(prefix + name)) for name in ("trip", "goes_on", "state")]
        results = [going, result, scan] if known else [going, result]
        outputs = _finish(nodes, results, prefix)
    body = helper.make_graph(nodes, "body", infos, outputs)
    names = [builder.name("t0_"), builder.name("t1_")][: len(results) - 1]
    node = helper.make_node("Loop", [count, "", x.name], names, body=body)
    builder.keep(*builder.add_node(node))


LAYERS: Final[tuple[Layer, ...]] = (_branch, _loop)
