"""Calls that stay calls: their ops know that they belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from popc.ir import CallSite, Graph

__all__ = ["ops_of_call"]


@contextmanager
def ops_of_call(graph: Graph, callee: str, name: str) -> Iterator[None]:
    """Let the ops that are added to ``graph`` meanwhile belong to the call ``name`` of ``callee``.

    Those of calls within this one belong to both.
    """
    before = len(graph)
    site = CallSite(callee, name, before)
    yield
    for op in graph.newest(max(len(graph) - before, 0)):
        op.settings = replace(op.settings, call=(site, *op.settings.call))
