"""Options that may not be said together, of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from popc.options.conflicts import (
    batch_serialization,
    checks,
    placement,
    recomputation,
    replicas,
    rewrites,
    steps,
    streaming,
    target,
    transfers,
)
from popc.options.options import Options

__all__ = ["CONFLICTS", "conflicts_among"]

# What each group finds, in the order in which users are told.
CONFLICTS: Final[tuple[Callable[[Options], Iterator[str]], ...]] = (
    steps.conflicts,
    recomputation.conflicts,
    checks.conflicts,
    replicas.conflicts,
    streaming.conflicts,
    placement.conflicts,
    batch_serialization.conflicts,
    transfers.conflicts,
    target.conflicts,
    rewrites.conflicts,
)


def conflicts_among(options: Options) -> Iterator[str]:
    """All of them, each with the options involved and what to do."""
    for conflicts in CONFLICTS:
        yield from conflicts(options)
