"""The ops that run once when a program is loaded instead of on every run."""

from __future__ import annotations

from popc.ir import Graph, Op, TensorKind
from popc.ops import OPS

__all__ = ["find_load_ops"]


def find_load_ops(graph: Graph) -> tuple[Op, ...]:
    """Ops of the top graph whose results follow from constants alone, producers first.

    Inputs, variables, random numbers, I/O, exchange between replicas, and ops that the op table
    does not know are what makes a result differ from run to run; an op nested in a subgraph spoils
    the op that holds it.
    """
    found: dict[Op, None] = {}
    constant = TensorKind.CONSTANT
    for op in graph.topological():
        for tensor in op.inputs:
            if tensor is not None and tensor.kind is not constant and tensor.producer not in found:
                break
        else:
            if _repeats_itself(op):
                found[op] = None
    return tuple(found)


def _repeats_itself(op: Op) -> bool:
    """True if equal operands give equal results, and computing them has no other effect."""
    if op.subgraphs:
        return all(_repeats_itself(inner) for graph in op.subgraphs.values() for inner in graph.ops)
    spec = OPS.get(op.op_type)
    if spec is None or (spec.transfer and not op.attributes.get("at_load")):
        return False
    return not (spec.random or spec.side_effect or spec.collective)
