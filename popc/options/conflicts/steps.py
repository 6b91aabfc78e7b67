"""Options about steps and anchors that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.anchors import Anchor
from popc.options.options import Options

__all__ = ["anchors_given", "conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Return types that do not fit the number of batches."""
    for what, anchor in anchors_given(options):
        problem = anchor.problem(options.batches_per_step)
        if problem:
            yield f"{what}: {problem}"


def anchors_given(options: Options) -> list[tuple[str, Anchor]]:
    """All return types, with what they are called."""
    named = [(f"anchors of {name!r}", anchor) for name, anchor in options.anchors.items()]
    return [*named, ("default_anchor", options.default_anchor)]
