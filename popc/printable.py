"""Names of a model as text: whatever a stranger has put into them, lines stay lines.

A name may hold line ends, escape sequences that a terminal obeys, and marks that turn the
direction of writing; printed as they are, a report could be made to say something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from unicodedata import east_asian_width

__all__ = ["counted", "format_table", "printable", "printable_data"]

_WIDEST: Final = 80  # characters of a cell that a column makes room for: the width of a terminal
_DANGEROUS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HIDDEN: Final = re.compile(f"[{_DANGEROUS}]")


def counted(count: int, what: str) -> str:
    """``1 problem``, ``2 problems``; nouns that end in s, x, ch or sh have es."""
    if count == 1:
        return f"1 {what}"
    ending = "es" if what.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count:,} {what}{ending}"


def printable(text: str, *, keep: str = "") -> str:
    r"""``text`` with control and direction characters written as ``\n``, ``\x1b``, ``\u202e``.

    Those in ``keep`` stay.
    """

    def escaped(found: re.Match[str]) -> str:
        character = found.group()
        if character in keep:
            return character
        return character.encode("unicode_escape").decode("ascii")

    return _HIDDEN.sub(escaped, text)


def printable_data(data: Any) -> Any:
    """Plain data, all strings in it `printable`."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable_data(key): printable_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [printable_data(item) for item in data]
    return data


def format_table(
    rows: Sequence[Sequence[str]], right: Sequence[int] = (), *, numbers: bool = False
) -> str:
    """Rows as aligned columns, those numbered in ``right`` to the right; or all ``numbers``.

    A cell that is very long moves what follows in its own row only.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [_widest(column) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for row in cells:
        parts = [
            _aligned(cell, width, to_right=column in right or (numbers and cell[:1].isdigit()))
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _aligned(cell: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if to_right else cell + space


def _widest(column: Sequence[str]) -> int:
    return max((width for width in map(_width, column) if width <= _WIDEST), default=0)


def _width(text: str) -> int:
    """Columns of a terminal: a character of Chinese and the like takes two."""
    wide = 0 if text.isascii() else sum(east_asian_width(char) in "WF" for char in text)
    return len(text) + wide
