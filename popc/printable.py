"""Names of a model as text: whatever a stranger has put into them, lines stay lines.

A name may hold line ends, escape sequences that a terminal obeys, and marks that turn the
direction of writing; printed as they are, a report could be made to say something else.
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["printable", "printable_data"]

_DANGEROUS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_HIDDEN: Final = re.compile(f"[{_DANGEROUS}]")


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with control and direction characters written as ``\\n``, ``\\x1b``, ``\\u202e``.

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
        return [printable_data(one) for one in data]
    return data
