"""Transfers that overlap with computing, and the tiles that make them."""

from popc.transforms.overlap_io.group_host_sync import GroupHostSync
from popc.transforms.overlap_io.overlap import OverlapIo
from popc.transforms.overlap_io.tile_copies import IoTileCopies

__all__ = ["GroupHostSync", "IoTileCopies", "OverlapIo"]
