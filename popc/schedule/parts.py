"""The ops that are ordered together: those of load time, of a run, and of every nested graph."""

from __future__ import annotations

from popc.ir import Graph, Op
from popc.ops.control import callee_of, loop_body, loop_states
from popc.ops.load import find_load_ops
from popc.schedule.footprint import Part

__all__ = ["find_parts"]


def find_parts(graph: Graph) -> list[Part]:
    """The parts of a program, nested graphs before those that hold them, load time last but one."""
    load = frozenset(find_load_ops(graph))
    holders: dict[Graph, Op] = {
        nested: op for part in graph.walk() for op in part.ops for nested in op.subgraphs.values()
    }
    nested_parts = [
        _nested_part(nested, holders[nested])
        for nested in reversed(list(graph.walk()))
        if nested is not graph
    ]
    at_load = tuple(op for op in graph.ops if op in load)
    at_run = tuple(op for op in graph.ops if op not in load)
    return [
        *nested_parts,
        Part(graph, at_load, at_load=True),
        Part(graph, at_run, tuple(graph.inputs)),
    ]


def _nested_part(graph: Graph, holder: Op) -> Part:
    if callee_of(holder) is graph:
        return Part(graph, graph.ops, called=True)
    if loop_body(holder) is not graph:
        return Part(graph, graph.ops)
    return Part(graph, graph.ops, tuple(state.inner for state in loop_states(holder)))
