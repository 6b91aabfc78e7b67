"""Tables that are put together from one part per family."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import ModuleType
from typing import TypeVar

__all__ = ["merge_families"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def merge_families(parts: Iterable[tuple[ModuleType, Mapping[_K, _V]]]) -> Mapping[_K, _V]:
    """One table from the tables of several modules.

    Raises:
        ValueError: two modules define the same key; names both.
    """
    table: dict[_K, _V] = {}
    owner: dict[_K, str] = {}
    for module, part in parts:
        for key, value in part.items():
            if key in table:
                raise ValueError(f"{key} is in {owner[key]} and in {module.__name__}")
            table[key] = value
            owner[key] = module.__name__
    return table
