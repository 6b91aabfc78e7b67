"""The part of a target that a program uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from popc.target.target import Target
from popc.target.topology import SelectionOrder
from popc_runtime.errors import OptionError

__all__ = ["configure_target"]

_FEWEST_IO_TILES: Final = 32  # PopART's bound for numIOTiles


def configure_target(
    target: Target,
    *,
    num_ipus: int = 1,
    tiles_per_ipu: int = 0,
    num_io_tiles: int = 0,
    selection_order: SelectionOrder = SelectionOrder.AUTO,
) -> Target:
    """``target`` with that many chips, tiles (0: all that a chip has) and tiles for transfers.

    Raises:
        OptionError: lists everything that the target cannot do.
    """
    tiles = tiles_per_ipu or target.tile.count
    problems = list(_problems(target, num_ipus, tiles, num_io_tiles))
    if problems:
        raise OptionError(
            f"the options do not fit the target {target.name}",
            subject="target",
            details=tuple(problems),
        )
    return replace(
        target,
        tile=replace(target.tile, count=tiles),
        num_ipus=num_ipus,
        num_io_tiles=num_io_tiles,
        selection_order=selection_order,
    )


def _problems(target: Target, ipus: int, tiles: int, io_tiles: int) -> Iterator[str]:
    most = target.links.max_ipus
    if ipus > most:
        yield f"num_ipus is {ipus}, but at most {most} can work together"
    if ipus & (ipus - 1):
        yield f"num_ipus is {ipus}, but must be a power of two"
    if tiles > target.tile.count:
        yield f"tiles_per_ipu is {tiles}, but a chip has {target.tile.count}"
    if io_tiles >= tiles:
        yield f"num_io_tiles is {io_tiles}, which leaves none of {tiles} tiles to compute"
    if 0 < io_tiles < _FEWEST_IO_TILES:
        yield f"num_io_tiles is {io_tiles}, but must be 0, or {_FEWEST_IO_TILES} or more"
    if io_tiles % 2:
        yield f"num_io_tiles is {io_tiles}, but pairs of tiles share a bus: it must be even"
