"""Calls that stay calls: their ops know that they belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from popc.ir import Graph

__all__ = ["ops_of_call"]


@contextmanager
def ops_of_call(graph: Graph, name: str) -> Iterator[None]:
    """Let the ops that are added to ``graph`` meanwhile belong to the call ``name``."""
    before = len(graph)
    yield
    for op in graph.newest(max(len(graph) - before, 0)):
        if not op.settings.call:  # of a call within this one
            op.settings = replace(op.settings, call=name)
