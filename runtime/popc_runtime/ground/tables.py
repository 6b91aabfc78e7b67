"""Tables that are put together from one part per family."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType

from popc_runtime.ground.hints import Any, Generic, TypeVar, overload

__all__ = ["LazyTable", "merge_families"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_Other = TypeVar("_Other")


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


class LazyTable(Mapping[_K, _V], Generic[_K, _V]):
    """A table whose parts are imported when a key of theirs is looked up.

    Args:
        package: Where the modules are.
        attribute: The name of the table in each module.
        families: The keys of each module's table, by module name.

    Raises:
        ValueError: two modules list the same key.
    """

    def __init__(self, package: str, attribute: str, families: Mapping[str, Iterable[_K]]) -> None:
        self._package = package
        self._attribute = attribute
        self._owner: dict[_K, str] = {}
        self._found: dict[_K, _V] = {}
        for module, keys in families.items():
            for key in keys:
                if key in self._owner:
                    raise ValueError(f"{key} is in {self._owner[key]} and in {module}")
                self._owner[key] = module

    def __getitem__(self, key: _K) -> _V:
        try:
            return self._found[key]
        except KeyError:
            module = import_module(f"{self._package}.{self._owner[key]}")
            found: _V = getattr(module, self._attribute)[key]
            self._found[key] = found
            return found

    @overload
    def get(self, key: _K) -> _V | None: ...
    @overload
    def get(self, key: _K, default: _V | _Other) -> _V | _Other: ...
    def get(self, key: _K, default: Any = None) -> Any:
        """The value of ``key``, or ``default``: without the errors that others ask by."""
        if key in self._found:
            return self._found[key]
        return self[key] if key in self._owner else default

    def __contains__(self, key: object) -> bool:
        return key in self._owner

    def __iter__(self) -> Iterator[_K]:
        return iter(self._owner)

    def __len__(self) -> int:
        return len(self._owner)
