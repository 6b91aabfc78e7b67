"""Values inside a control-flow op that the backward pass needs, as results of the op."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.autodiff.copying import GraphCopy
from popc.autodiff.loop_parts import FIRST_STATE, LoopParts
from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc_runtime.format import DType

__all__ = ["count_iterations", "export", "original_of"]

_COUNT: Final = "iterations"


def export(graph: Graph, op: Op, name: str, inner: Tensor) -> Tensor:
    """Make ``inner`` a result of ``op``; the result there is, if there is one.

    Args:
        graph: The graph that holds ``op``.
        op: An If, whose result is zero if it takes the other branch, or a Loop, whose result has
            the values of all iterations, stacked.
        name: The subgraph of ``op`` that holds ``inner``.
    """
    values, results, type_ = op.subgraphs[name].outputs, op.outputs, inner.type
    if op.op_type == "Loop":
        loop = LoopParts(op)
        values, results = loop.scans, loop.stacks
        type_ = type_.with_shape((loop.trip_count, *type_.shape))
    for value, result in zip(values, results, strict=True):
        if value is inner:
            return result
    for other, subgraph in op.subgraphs.items():
        value = inner if other == name else _zeros(subgraph, inner.type)
        subgraph.add_output(value.name, value)
    return graph.insert_output(op, len(op.outputs), inner.name, type_)


def _zeros(graph: Graph, type_: TensorType) -> Tensor:
    zero = graph.add_constant("zero", type_.with_shape(()), np.zeros((), type_.dtype.storage))
    return build(graph, "Expand", [zero], {"shape": type_.shape}).output


def count_iterations(graph: Graph, op: Op) -> Tensor:
    """The number of iterations that a Loop of ``graph`` has done: one more state."""
    loop = LoopParts(op)
    states, body = loop.states, loop.body
    scalar = TensorType(DType.INT64, ())
    zero = graph.add_constant("zero", scalar, np.zeros((), np.int64))
    one = body.add_constant("one", scalar, np.ones((), np.int64))
    formal = body.add_input(_COUNT, scalar)
    body.inputs.insert(FIRST_STATE + states, body.inputs.pop())
    settings = OpSettings(origin=op.settings.origin)
    body.outputs.insert(1 + states, build(body, "Add", [formal, one], settings=settings).output)
    body.output_names.insert(1 + states, _COUNT)
    op.attributes["states"] = states + 1
    graph.insert_input(op, FIRST_STATE + states, zero)
    return graph.insert_output(op, states, _COUNT, scalar)


def original_of(tensor: Tensor, copied: GraphCopy) -> Tensor:
    """The original of ``tensor``, which belongs to a copy.

    If it is a result that the backward pass has given to a copied control-flow op, the original op
    gets it too.
    """
    if tensor not in copied.original_tensors:
        copied.original_tensors[tensor] = _exported_original(tensor, copied)
    return copied.original_tensors[tensor]


def _exported_original(tensor: Tensor, copied: GraphCopy) -> Tensor:
    op = tensor.producer
    assert op is not None, f"{tensor!r} is no copy"
    original, graph = copied.original_ops[op]
    index = next(i for i, result in enumerate(op.outputs) if result is tensor)
    if op.op_type == "Loop" and index < LoopParts(op).states:
        return count_iterations(graph, original)  # the only state that is ever added
    shift = 1 if op.op_type == "Loop" else 0
    for name, subgraph in op.subgraphs.items():
        value = subgraph.outputs[shift + index]
        if value in copied.original_tensors or value.producer in copied.original_ops:
            return export(graph, original, name, original_of(value, copied))
    raise AssertionError(f"{tensor!r} is no copy")
