"""What a verb hands back: data for machines, text for people, an exit code for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from unicodedata import east_asian_width

from popc.printable import printable

__all__ = ["Report", "format_bytes", "format_seconds", "format_table"]

_WIDEST: Final = 80


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verb.

    Attributes:
        verb: Names the JSON schema ``popc.<verb>/1``.
        data: JSON-ready fields.
        text: The same for people; "" prints nothing.
        exit_code: 0, or 1 for a negative answer (mismatch, unsupported ops, budget missed).
        warnings: Things the user should know although the verb did its work.
    """

    verb: str
    data: dict[str, Any]
    text: str
    exit_code: int = 0
    warnings: tuple[str, ...] = field(default=())


def format_table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows as aligned columns; those numbered in ``right`` are aligned to the right.

    A cell that is very long moves what follows in its own row only.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(*cells, strict=True))
    widths = [
        max((one for one in map(_width, column) if one <= _WIDEST), default=0) for column in columns
    ]
    return "\n".join(_line(row, widths, right) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    parts: list[str] = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - _width(cell))
        parts.append(space + cell if column in right else cell + space)
    return "  ".join(parts).rstrip()


def _width(text: str) -> int:
    """Columns of a terminal: Chinese and the like takes two for a character."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(one) in "WF") for one in text)


def format_bytes(count: int) -> str:
    """``1,234 bytes`` below ten thousand, else in decimal units: ``12.3 MB``."""
    if count < 10_000:
        return f"{count:,} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            return f"{value:.1f} {unit}"
    raise AssertionError


def format_seconds(seconds: float) -> str:
    """Three significant digits with a unit: ``12.3 ms``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us"
