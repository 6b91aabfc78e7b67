"""Between chips: links, syncs, collectives."""

from __future__ import annotations

from math import ceil

from popc.target import Target, Topology, hops, sync_hops

__all__ = ["all_reduce_bytes", "copy_cycles", "global_sync", "link_cycles"]

_HOP_SECONDS = 15e-9  # between neighbouring chips: Hot Chips 33, and poplibs' test of collectives


def link_cycles(target: Target, bytes_: int) -> int:
    """Cycles in which a chip sends ``bytes_`` to its neighbours on the ladder, and receives them.

    Poplibs' model: every link has 85 % of its bandwidth; those up the rails are what limits rings.
    """
    links = target.links
    if links.topology is Topology.NONE or not links.link_bits_per_second:
        return ceil(bytes_ / target.host_bytes_per_cycle)
    bits_per_second = links.link_bits_per_second * links.efficiency * max(links.up, 1)
    return ceil(bytes_ * 8 / bits_per_second * target.tile.clock_hz)


def copy_cycles(target: Target, bytes_: int, source: int, destination: int) -> int:
    """Cycles in which ``bytes_`` go from one chip to another; chips are counted along the ladder.

    Every link on the way has the same bandwidth, so that distance costs the time of each hop.
    """
    if target.links.topology is Topology.NONE:
        return link_cycles(target, bytes_)
    way = _HOP_SECONDS * target.tile.clock_hz * hops(source, destination)
    return link_cycles(target, bytes_) + ceil(way)


def global_sync(target: Target, ipus: int) -> int:
    """Cycles of a sync of ``ipus`` chips: both ways over the hops between them."""
    if ipus <= 1:
        return target.exchange.sync_cycles
    way = ceil(_HOP_SECONDS * target.tile.clock_hz * sync_hops(ipus) * 2)
    return target.exchange.global_sync_cycles + way


def all_reduce_bytes(bytes_: int, members: int) -> int:
    """The bytes that each of ``members`` sends in a ring: all parts but its own, twice."""
    return ceil(2 * bytes_ * (members - 1) / max(members, 1))
