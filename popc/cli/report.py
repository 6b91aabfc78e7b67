"""The result of a verb: data for machines, text for people, an exit code for scripts."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from popc.printable import counted, format_table
from popc_runtime.ground.frozen import frozen

__all__ = ["Report", "counted", "format_bytes", "format_seconds", "format_table"]


@frozen
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
