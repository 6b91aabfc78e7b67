"""A mapping that can be part of a frozen record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

__all__ = ["FrozenTable"]

_T = TypeVar("_T")


class FrozenTable(Mapping[str, _T]):
    """An immutable mapping, sorted by key; hashable if its values are."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, _T] | None = None) -> None:
        self._items = dict(sorted((items or {}).items()))

    def __getitem__(self, key: str) -> _T:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def matching(self, name: str) -> _T | None:
        """The entry for ``name``: its own, or that of the first key that is a pattern for it."""
        items = self._items
        if name in items:
            return items[name]
        return next((value for key, value in items.items() if fnmatchcase(name, key)), None)

    def without(self, key: str) -> FrozenTable[_T]:
        """This table without one entry."""
        return FrozenTable({name: item for name, item in self._items.items() if name != key})

    def updated(self, other: Mapping[str, _T]) -> FrozenTable[_T]:
        """This table with the entries of ``other`` added, or in place of its own."""
        return FrozenTable({**self._items, **other})
