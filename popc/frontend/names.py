"""Names of a model as people see them, and the nearest ones to a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = [
    "abbreviated",
    "default_domain_name",
    "did_you_mean",
    "listed",
    "operator_name",
    "shown",
]

_LISTED: Final = 4  # names shown of many
_LONGEST: Final = 1000  # characters; what strict limits of readers accept


def shown(name: str) -> str:
    """``name`` for a message: control characters and the like are escaped."""
    if name.isprintable():
        return name
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


def abbreviated(name: str) -> str:
    """``name`` as archives hold the names of nodes: very long ones by their ends."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}...{name[-_LONGEST // 4 :]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause that proposes the nearest known name, or nothing."""
    from difflib import get_close_matches

    matches = get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def operator_name(op_type: str, domain: str, version: int) -> str:
    """An operator with its domain and opset, for messages."""
    return f"{domain or 'ai.onnx'}.{op_type} (opset {version})"


def default_domain_name(domain: str) -> str:
    """The domain as the frontend writes it: "" for ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def listed(names: Sequence[str]) -> str:
    """The first few of ``names`` for a message, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(shown, names[:_LISTED])) + more
