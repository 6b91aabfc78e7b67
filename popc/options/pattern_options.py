"""Options about patterns, work in place and products of matrices."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.outline_options import OutlineOptions

__all__ = ["PatternOptions"]


@dataclass(frozen=True, slots=True)
class PatternOptions(OutlineOptions):
    """Which local rewrites are made."""
