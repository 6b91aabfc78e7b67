"""The end of a graph that nobody needs any more."""

from __future__ import annotations

from popc.ir.graph import Graph

__all__ = ["dissolve"]


def dissolve(graph: Graph) -> None:
    """Part the ops and tensors of ``graph``, and of those nested in it; it is empty afterwards.

    They hold each other in circles: without these, all is gone at once, and Python's collector need
    not look through it.
    """
    for part in tuple(graph.walk()):
        for tensor in part.tensors.values():
            tensor.producer = None
            tensor.uses = {}
        part.split_off(part.name)
