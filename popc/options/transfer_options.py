"""Options about transfers between host and device."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.pattern_options import PatternOptions

__all__ = ["TransferOptions"]


@dataclass(frozen=True, slots=True)
class TransferOptions(PatternOptions):
    """How transfers overlap with computing."""
