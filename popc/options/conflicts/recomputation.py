"""Options about recomputation that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.groups.recomputation import AutoRecomputation
from popc.options.options import Options

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Two ways to choose what is computed once more."""
    auto = options.auto_recomputation
    if auto is not AutoRecomputation.NONE and options.recompute:
        yield (
            f"recompute names tensors and auto_recomputation is {auto}: choose one of them "
            "(checkpoints adds to what is kept)"
        )
