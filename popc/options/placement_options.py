"""Options about where ops run: virtual graphs, pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.replication import ReplicationOptions

__all__ = ["PlacementOptions"]


@dataclass(frozen=True, slots=True)
class PlacementOptions(ReplicationOptions):
    """Which chip runs what."""
