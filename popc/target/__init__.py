"""The IPU as data: chips, tiles, exchange, links, host."""

from __future__ import annotations

from popc.target.configure import configure_target
from popc.target.parse import (
    ALIASES,
    PRESETS,
    find_target,
    parse_target,
    preset_text,
    target_file,
)
from popc.target.target import Conv, Exchange, Host, Links, Target, Tile
from popc.target.topology import (
    SelectionOrder,
    Topology,
    hops,
    linked,
    select_ipus,
    sync_hops,
)

__all__ = [
    "ALIASES",
    "PRESETS",
    "Conv",
    "Exchange",
    "Host",
    "Links",
    "SelectionOrder",
    "Target",
    "Tile",
    "Topology",
    "configure_target",
    "find_target",
    "hops",
    "linked",
    "parse_target",
    "preset_text",
    "select_ipus",
    "sync_hops",
    "target_file",
]
