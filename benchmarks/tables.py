"""Tables of figures in documents, which benchmarks write with --write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["DOCS", "write_table"]

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"


def write_table(page: Path, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Put ``rows`` into the table of a page that has these heads, in place of those it has.

    Raises:
        ValueError: the page has no such table, or several.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    head = _line(heads)
    if lines.count(head) != 1:
        raise ValueError(f"{page.name} has {lines.count(head)} tables with the line {head}")
    first = lines.index(head) + 2
    last = first
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    lines[first:last] = map(_line, rows)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
