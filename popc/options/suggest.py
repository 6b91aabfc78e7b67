"""Help for those who mistyped a name."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str:
    """A question with the most similar known name; "" if none is similar."""
    import difflib

    close = difflib.get_close_matches(name, list(known), 1, similarity)
    return f"did you mean {close[0]}?" if close else ""
