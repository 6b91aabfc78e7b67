"""A kind of values: how they are read, and how they are written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from popc_runtime.format import OptionValue

__all__ = ["Kind"]

T = TypeVar("T")


class Kind(ABC, Generic[T]):
    """Values of one kind, from text and from data.

    Kinds know nothing of options: whoever has a value of a user in hand can parse it.

    Attributes:
        called: The word for a value, in listings.
        called_in_tables, called_in_lists: The words for a table and for a list of such values.
    """

    called: ClassVar[str]
    called_in_tables: ClassVar[str] = ""
    called_in_lists: ClassVar[str] = ""

    @abstractmethod
    def parse(self, value: object) -> T:
        """``value`` as one of this kind; text is what command line and environment give.

        Raises:
            ValueError: says what is wrong, as what follows the name of the option.
        """

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return self.called

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that a value, or its parts, can be chosen from; empty if there are no such."""
        return ()

    @property
    def bounds(self) -> tuple[float, ...]:
        """The smallest and the largest value; empty if it is no number."""
        return ()

    @property
    def is_table(self) -> bool:
        """True if values have entries, each of which can be set by itself."""
        return False

    def is_parsed(self, value: T) -> bool:
        """True if words in ``value`` are what `parse` makes of them, and not text of a user."""
        del value
        return True

    def entry(self, value: T) -> bool | int | float | str:
        """``value`` as an entry of a table: a number, or words that `parse` reads."""
        return value if isinstance(value, bool | int | float) else str(value)

    def plain(self, value: T) -> OptionValue:
        """``value`` as archives and listings have it, without our classes."""
        return self.entry(value)
