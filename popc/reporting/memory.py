"""The memory of a chip by tile and by step, in the words of Poplar's profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.cost import CODE_CATEGORIES, LiveTensor, MemoryReport

__all__ = ["CATEGORIES", "by_tile", "memory_section"]

# In the order in which charts stack them: what is always live first.
CATEGORIES: Final = (
    "stack",
    "gaps",
    *CODE_CATEGORIES,
    "constants",
    "variables",
    "activations",
    "message_buffers",
    "temporary",
)
_ALIKE: Final = ("stack", "gaps", "temporary", "message_buffers")


def by_tile(chip: MemoryReport) -> dict[str, list[int]]:
    """Bytes of every tile at the peak, by category; those that all tiles share have one number.

    Stack and gaps are alike on all tiles; of temporary data the busiest tile's share counts for
    every tile.  Code is divided as on the busiest tile, and constants are told with variables.
    """
    tiles: dict[str, list[int]] = {name: [getattr(chip.busiest, name)] for name in _ALIKE}
    code = _code_of(chip)
    tiles |= _code_by_tile(chip, code)
    alike = chip.busiest.stack + chip.busiest.gaps
    pairs = zip(chip.always_live, code, strict=True)
    tiles["variables"] = [always - alike - own for always, own in pairs]
    tiles["constants"] = [0]
    temporary = chip.busiest.temporary + chip.busiest.message_buffers
    peaks = zip(chip.peak, chip.always_live, strict=True)
    tiles["activations"] = [peak - live - temporary for peak, live in peaks]
    return {name: tiles[name] for name in CATEGORIES}


def _code_of(chip: MemoryReport) -> tuple[int, ...]:
    """Code of every tile; reports of older versions have the same on each."""
    same = sum(getattr(chip.busiest, name) for name in CODE_CATEGORIES)
    return chip.code or (same,) * len(chip.peak)


def _code_by_tile(chip: MemoryReport, code: Sequence[int]) -> dict[str, list[int]]:
    sizes = {name: getattr(chip.busiest, name) for name in CODE_CATEGORIES}
    whole = max(sum(sizes.values()), 1)
    tiles = {name: [size * own // whole for own in code] for name, size in sizes.items()}
    rest = [
        own - sum(column)
        for own, column in zip(code, zip(*tiles.values(), strict=True), strict=True)
    ]
    pairs = zip(tiles["vertex_code"], rest, strict=True)
    return {**tiles, "vertex_code": [size + left for size, left in pairs]}


def memory_section(chips: tuple[MemoryReport, ...], *, full: bool) -> dict[str, Any]:
    """The memory report: always live and not, by category, by step; with ``full``, by tile too."""
    return {"ipus": [_chip(number, chip, full=full) for number, chip in enumerate(chips)]}


def _chip(number: int, chip: MemoryReport, *, full: bool) -> dict[str, Any]:
    always = max(chip.always_live, default=0)
    data: dict[str, Any] = {
        "ipu": number,
        "limit_bytes": chip.limit,
        "max_tile_bytes": chip.peak_bytes,
        "max_tile": chip.peak.index(chip.peak_bytes) if chip.peak else -1,
        "tiles": len(chip.peak),
        "tiles_over_limit": chip.tiles_over,
        "total_bytes": sum(chip.peak),
        "always_live_bytes": always,
        "not_always_live_bytes": chip.peak_bytes - always,
        "peak_step": _step(chip, chip.peak_step),
        "by_category": {
            name: {
                "max_tile": chip.busiest.to_dict().get(name, 0),
                "average_tile": chip.average.to_dict().get(name, 0),
            }
            for name in CATEGORIES
        },
        "by_region": chip.regions.to_dict(),
        "biggest_tensors": [_tensor(tensor) for tensor in chip.tensors[: None if full else 20]],
    }
    if full:
        data["by_tile"] = {"total": list(chip.peak), "always_live": list(chip.always_live)}
        data["liveness"] = [_step(chip, step) for step in range(len(chip.steps))]
    return data


def _step(chip: MemoryReport, number: int) -> dict[str, Any] | None:
    if not 0 <= number < len(chip.steps):
        return None
    step = chip.steps[number]
    return {
        "step": number,
        "name": step.name,
        "not_always_live_bytes": step.activations,
        "temporary_bytes": step.temporary,
        "max_tile_bytes": step.busiest,
        "max_tile": step.tile,
    }


def _tensor(tensor: LiveTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "type": tensor.type,
        "kind": tensor.kind,
        "node": tensor.origin,
        "bytes": tensor.bytes,
        "bytes_on_max_tile": tensor.on_busiest,
        "live_from_step": tensor.first,
        "live_to_step": tensor.last,
    }
