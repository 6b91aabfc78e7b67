"""Tables from names to values of another kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from popc.options.kinds.kind import Kind
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue

__all__ = ["Table", "parse_entries"]

T = TypeVar("T")

_EXAMPLE = "y=final,z=every_n:2"


class Table(Kind[FrozenTable[T]], Generic[T]):
    """A table whose entries are of the kind ``entries``.

    Args:
        entries: The kind of each entry.
        what: Names it maps to what: "from tensor names to return types".
        keys: The names that there are; if there are none, any.
        example: A table as text.
    """

    def __init__(
        self, entries: Kind[T], what: str, *, keys: Sequence[str] = (), example: str = _EXAMPLE
    ) -> None:
        self._entries = entries
        self._what = what
        self._keys = tuple(keys)
        self._example = example

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return self._entries.called_in_tables

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that entries can have, or what they can be chosen from."""
        return self._keys or self._entries.choices

    @property
    def is_table(self) -> bool:
        """True: entries can be set one by one."""
        return True

    def parse(self, value: object) -> FrozenTable[T]:
        """A mapping, or text such as ``y=final,z=sum``."""
        table = parse_entries(value, self._what, self._entries.parse, self._example)
        unknown = [name for name in table if self._keys and name not in self._keys]
        if unknown:
            name, keys = unknown[0], self._keys
            advice = did_you_mean(name, keys) or f"choose from {', '.join(keys)}"
            raise ValueError(f"has no entry {name!r}: {advice}")
        return table

    def is_parsed(self, value: FrozenTable[T]) -> bool:
        """True if all entries have been parsed."""
        return all(map(self._entries.is_parsed, value.values()))

    def plain(self, value: FrozenTable[T]) -> OptionValue:
        """Pairs of names and entries."""
        return tuple((key, self._entries.entry(entry)) for key, entry in value.items())


def parse_entries(
    value: object, what: str, parse: Callable[[object], T], example: str = _EXAMPLE
) -> FrozenTable[T]:
    """A table, ``what`` it maps, whose entries ``parse`` reads; ``example`` shows it as text.

    Raises:
        ValueError: it is no table, or an entry is wrong.
    """
    table = _from_text(value, example) if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError(f"is {value!r}, but must be a table {what}")
    entries: dict[str, T] = {}
    for name, item in table.items():
        try:
            entries[str(name)] = parse(item)
        except ValueError as error:
            raise ValueError(f"of {name!r} {error}") from None
    return FrozenTable(entries)


def _from_text(text: str, example: str) -> dict[str, str]:
    """``y=final,z=every_n:2`` as a table."""
    table: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, separator, value = item.rpartition("=")
        if not separator:
            raise ValueError(f"holds {item!r}, but must be like {example}")
        table[name.strip()] = value.strip()
    return table
