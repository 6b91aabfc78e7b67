"""Names that nothing else has."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popc.ir.graph import Graph

__all__ = ["free_name", "names_of_graphs"]


def free_name(
    name: str, taken: Container[str], *, first: int = 1, form: str = "{name}_{number}"
) -> str:
    """``name`` if it is not taken, else the first of its numbered forms that is not.

    ``first`` is the number that is tried first.
    """
    if name not in taken:
        return name
    numbered = (form.format(name=name, number=number) for number in count(first))
    return next(found for found in numbered if found not in taken)


def names_of_graphs(
    graphs: Iterable[Graph], taken: Iterable[str] = (), form: str = "{name}_{number}"
) -> dict[Graph, str]:
    """A name for each graph that no other one has, and that is not taken: its own if possible."""
    known = set(taken)
    names: dict[Graph, str] = {}
    for graph in graphs:
        names[graph] = free_name(graph.name, known, form=form)
        known.add(names[graph])
    return names
