"""The IPU as data: chips, tiles, exchange, links, host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(
    __name__,
    {
        "ALIASES": "popc.target.parse",
        "Conv": "popc.target.target",
        "Exchange": "popc.target.target",
        "Host": "popc.target.target",
        "Links": "popc.target.target",
        "PRESETS": "popc.target.parse",
        "SelectionOrder": "popc.target.topology",
        "Target": "popc.target.target",
        "Tile": "popc.target.target",
        "Topology": "popc.target.topology",
        "configure_target": "popc.target.configure",
        "find_target": "popc.target.parse",
        "hops": "popc.target.topology",
        "linked": "popc.target.topology",
        "parse_target": "popc.target.parse",
        "preset_text": "popc.target.parse",
        "select_ipus": "popc.target.topology",
        "sync_hops": "popc.target.topology",
        "target_file": "popc.target.parse",
    },
)
