"""The steps of a program that costs are made of."""

from __future__ import annotations

from dataclasses import replace

from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["Cycles", "Phase"]


@frozen
class Cycles:
    """Cycles by what they are spent on."""

    compute: int = 0
    exchange: int = 0
    sync: int = 0
    launch: int = 0
    host: int = 0

    @property
    def total(self) -> int:
        """All of them: phases follow each other."""
        return self.compute + self.exchange + self.sync + self.launch + self.host

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(
            self.compute + other.compute,
            self.exchange + other.exchange,
            self.sync + other.sync,
            self.launch + other.launch,
            self.host + other.host,
        )

    def __mul__(self, times: int) -> Cycles:
        return Cycles(
            self.compute * times,
            self.exchange * times,
            self.sync * times,
            self.launch * times,
            self.host * times,
        )


@frozen
class Phase:
    """An exchange and the vertices after it; either may be missing.

    Attributes:
        name: What it does.
        compute, exchange: Cycles of the busiest tile.
        exchanges, launches: How many of each follow one another.
        vertex: The kind of vertex, "" for none.
        sources: Tiles that the busiest tile hears from, in all exchanges together.
        temporary: Bytes on the busiest tile while it runs.
        host: Cycles for the host.
    """

    name: str
    compute: int = 0
    exchange: int = 0
    exchanges: int = 0
    launches: int = 0
    vertex: str = ""
    sources: int = 0
    temporary: int = 0
    host: int = 0

    def cycles(self, target: Target) -> Cycles:
        """The cycles, with syncs and launches."""
        exchange = target.exchange
        return Cycles(
            self.compute,
            self.exchange + self.exchanges * exchange.setup_cycles,
            self.exchanges * exchange.sync_cycles,
            self.launches * target.tile.vertex_launch_cycles,
            self.host,
        )

    def times(self, count: int) -> Phase:
        """It, ``count`` times one after another; the memory is used again."""
        return replace(
            self,
            compute=self.compute * count,
            exchange=self.exchange * count,
            exchanges=self.exchanges * count,
            launches=self.launches * count,
            host=self.host * count,
        )
