"""Targets that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.options import Options

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Proportions for other chips than there are."""
    given = len(options.available_memory_per_ipu)
    if given not in (0, options.num_ipus):
        yield (
            f"available_memory_per_ipu has {given} numbers, but num_ipus is {options.num_ipus}: "
            "give one number for each chip"
        )
