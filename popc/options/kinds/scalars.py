"""Single values: truth values, numbers, text, and words of a choice."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import ClassVar, Final, TypeVar

from popc.options.kinds.kind import Kind
from popc_runtime.ground.frozen import inheritable

__all__ = ["Choice", "Number", "Text", "Truth", "Whole"]

Word = TypeVar("Word", bound=str)

_LARGEST: Final = (1 << 48) - 1  # exact also as a float
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_TRUTH: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


@inheritable
class Truth(Kind[bool]):
    """True or false; with ``numbers`` also 1 or 0."""

    numbers: bool = False

    called: ClassVar[str] = "bool"

    def parse(self, value: object) -> bool:
        """A truth value, or one of the words for it."""
        if isinstance(value, bool):
            return value
        given = str(value) if self.numbers and isinstance(value, int) else value
        truth = _TRUTH.get(given.lower()) if isinstance(given, str) else None
        if truth is None:
            raise ValueError(f"is {value!r}, but must be true or false")
        return truth


@inheritable
class Whole(Kind[int]):
    """A whole number from ``low`` to ``high``."""

    low: int = 0
    high: int = _LARGEST

    called: ClassVar[str] = "int"
    called_in_tables: ClassVar[str] = "ints"
    called_in_lists: ClassVar[str] = "integers"

    def parse(self, value: object) -> int:
        """A number, or its decimal digits."""
        text = value.strip() if isinstance(value, str) else ""
        number = int(text) if _WHOLE.fullmatch(text) else value
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"is {value!r}, but must be a whole number")
        if number < self.low:
            raise ValueError(f"is {number}, but must be at least {self.low}")
        if number > self.high:
            raise ValueError(f"is {number}, but must be at most {self.high}")
        return number

    @property
    def bounds(self) -> tuple[float, ...]:
        """The smallest and the largest number."""
        return (self.low, self.high)


@inheritable
class Number(Kind[float]):
    """A number from ``low`` to ``high``."""

    low: float = 0
    high: float = _LARGEST

    called: ClassVar[str] = "float"
    called_in_tables: ClassVar[str] = "floats"
    called_in_lists: ClassVar[str] = "numbers"

    def parse(self, value: object) -> float:
        """A number, or how Python writes it; no NaN."""
        number = value
        if isinstance(value, str):
            try:
                number = float(value)
            except ValueError:
                number = value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"is {value!r}, but must be a number")
        if not self.low <= number <= self.high:
            raise ValueError(f"is {number}, but must be from {self.low} to {self.high}")
        return float(number)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The smallest and the largest number."""
        return (self.low, self.high)


@inheritable
class Text(Kind[str]):
    """Text that is not empty, without blanks around it."""

    called: ClassVar[str] = "text"
    called_in_tables: ClassVar[str] = "words"

    def parse(self, value: object) -> str:
        """Text as it is, but for blanks around it."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"is {value!r}, but must be text")
        return value.strip()


class PathName(Kind[str]):
    """The path of a file or folder, "" for none."""

    called: ClassVar[str] = "path"

    def parse(self, value: object) -> str:
        """Text or a path, without blanks around it."""
        if not isinstance(value, str | os.PathLike):
            raise ValueError(f"is {value!r}, but must be a path")
        return os.fspath(value).strip()


class Choice(Kind[Word]):
    """One of several words: ``Choice("greedy", "fifo")``, or the members ``Choice(*TieBreaker)``.

    Case and underscores do not matter: NormOnly, as PopART writes it, is norm_only.
    """

    called: ClassVar[str] = "choice"
    called_in_tables: ClassVar[str] = "choices"

    def __init__(self, *words: Word, synonyms: Mapping[str, Word] | None = None) -> None:
        """``synonyms`` are other spellings, in lower case and without underscores."""
        self._words: Final = words
        self._meant: Final = {_without_joints(word): word for word in words} | dict(synonyms or {})

    def parse(self, value: object) -> Word:
        """The word that is meant."""
        meant = self._meant.get(_without_joints(value)) if isinstance(value, str) else None
        if meant is None:
            raise ValueError(f"is {value!r}, but must be one of {', '.join(self._words)}")
        return meant

    def is_parsed(self, value: Word) -> bool:
        """True if it is one of the words: text is no member of an enum, though it is equal."""
        return any(type(value) is type(word) and value == word for word in self._words)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words, as plain text."""
        return tuple(map(str, self._words))


def _without_joints(word: str) -> str:
    return word.lower().replace("_", "")
