"""Tell ops which part of a step of training they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from popc.ir import Graph, Op, StepPart, Tensor
from popc_runtime.ground.frozen import replace

__all__ = ["added_ops_in", "mark_forward"]


def mark_forward(graph: Graph, loss: Tensor) -> None:
    """Mark the ops that ``loss`` depends on, and the others, which are aside."""
    leading: set[Op] = set()
    for op in reversed(graph.topological()):
        users = (user for tensor in op.outputs for user in tensor.uses)
        if loss.producer is op or any(user in leading for user in users):
            leading.add(op)
    _mark((op for op in graph.ops if op not in leading), StepPart.ASIDE)


@contextmanager
def added_ops_in(graph: Graph, part: StepPart) -> Iterator[None]:
    """The ops that the block adds to ``graph`` belong to ``part``, with all that they hold."""
    known = frozenset(graph.ops)
    yield
    _mark((op for op in graph.ops if op not in known), part)


def _mark(ops: Iterable[Op], part: StepPart) -> None:
    for op in ops:
        op.settings = replace(op.settings, part=part)
        for subgraph in op.subgraphs.values():
            _mark((inner for nested in subgraph.walk() for inner in nested.ops), part)
