"""Options about execution phases and about where tensors are kept."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.placement_options import PlacementOptions

__all__ = ["StreamingOptions"]


@dataclass(frozen=True, slots=True)
class StreamingOptions(PlacementOptions):
    """What is kept in streaming memory, and when it is fetched."""
