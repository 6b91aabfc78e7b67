"""Lists: of names, of patterns, of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Generic, Self, TypeVar

from popc.options.kinds.kind import Kind
from popc.options.suggest import did_you_mean
from popc_runtime.format import OptionValue
from popc_runtime.ground.frozen import inheritable

__all__ = ["Known", "Names", "Patterns", "Several", "require_known"]

T = TypeVar("T")
Word = TypeVar("Word", bound=str)


@inheritable
class Known(Kind[T]):
    """Values in which only known names may stand.

    Attributes:
        known: These names.  Those of passes are no part of the schema: see `among`.
    """

    known: tuple[str, ...] = ()

    def among(self, names: Sequence[str]) -> Self:
        """This kind, when it has turned out which names there are."""
        return replace(self, known=tuple(names))

    @property
    def choices(self) -> tuple[str, ...]:
        """The known names, as plain text."""
        return tuple(map(str, self.known))


@inheritable
class Names(Known[tuple[Word, ...]], Generic[Word]):
    """A list of some of the known names, sorted; these are words or members of an enum.

    Case does not matter where no name is written exactly so: PopART writes Inner for inner.
    """

    known: tuple[Word, ...] = ()

    called: ClassVar[str] = "names"

    def parse(self, value: object) -> tuple[Word, ...]:
        """A list of names, or names with commas between them."""
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"is {value!r}, but must be a list of names")
        meant = {str(known_name): known_name for known_name in self.known}
        folded = {name.lower(): name for name in meant}
        chosen = {
            name if name in meant else folded.get(name.lower(), name) for name in map(str, names)
        }
        for name in sorted(chosen - {""}):
            require_known(name, self.known)
        return tuple(meant[name] for name in sorted(chosen - {""}))

    def is_parsed(self, value: tuple[Word, ...]) -> bool:
        """True if known names are those that are known."""
        types = {type(name) for name in self.known}
        return not types or all(type(item) in types for item in value)

    def plain(self, value: tuple[Word, ...]) -> OptionValue:
        """The names."""
        return tuple(map(str, value))


class Patterns(Kind[tuple[str, ...]]):
    """A list of names in which * stands for anything."""

    called: ClassVar[str] = "patterns"

    def parse(self, value: object) -> tuple[str, ...]:
        """A list of patterns, or patterns with commas between them."""
        patterns = value.split(",") if isinstance(value, str) else value
        if not isinstance(patterns, list | tuple) or not all(
            isinstance(pattern, str) for pattern in patterns
        ):
            raise ValueError(f"is {value!r}, but must be a list of names or patterns")
        stripped = (pattern.strip() for pattern in patterns)
        return tuple(dict.fromkeys(item for item in stripped if item))

    def plain(self, value: tuple[str, ...]) -> OptionValue:
        """The patterns."""
        return value


class Several(Kind[tuple[T, ...]], Generic[T]):
    """A list of numbers of one kind."""

    def __init__(self, item: Kind[T]) -> None:
        self._item = item

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return self._item.called_in_lists

    def parse(self, value: object) -> tuple[T, ...]:
        """A list of numbers, or numbers with commas between them."""
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(f"is {value!r}, but must be a list of numbers")
        stripped = (item.strip() if isinstance(item, str) else item for item in items)
        return tuple(self._item.parse(item) for item in stripped if item != "")

    def plain(self, value: tuple[T, ...]) -> OptionValue:
        """The numbers."""
        return tuple(map(self._item.entry, value))


def require_known(name: str, known: Sequence[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ValueError: with the nearest one, or all.
    """
    if name not in known:
        advice = did_you_mean(name, known) or f"choose from {', '.join(known)}"
        raise ValueError(f"contains {name!r}, which does not exist: {advice}")
