"""Options about outlining: code that is shared by parts of a program."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.batch_options import BatchOptions

__all__ = ["OutlineOptions"]


@dataclass(frozen=True, slots=True)
class OutlineOptions(BatchOptions):
    """Which repeated parts of a program become one subgraph."""
