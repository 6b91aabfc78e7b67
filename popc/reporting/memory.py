"""The memory of a chip by tile and by step, in the words of Poplar's profiles."""

from __future__ import annotations

from typing import Any, Final

from popc.cost import LiveTensor, MemoryReport

__all__ = ["CATEGORIES", "by_tile", "memory_section"]

# In the order in which charts stack them: what is always live first.
CATEGORIES: Final = (
    "stack",
    "padding",
    "vertex_code",
    "vertex_state",
    "exchange_code",
    "control_code",
    "host_exchange",
    "variables",
    "activations",
    "temporary",
)
_BY_TILE: Final = ("variables", "activations")
_NOT_ALWAYS_LIVE: Final = ("activations", "temporary")


def by_tile(chip: MemoryReport) -> dict[str, list[int]]:
    """Bytes of every tile at the peak, by category; those that all tiles share have one number.

    What is in use throughout lies on all tiles alike, but for variables; so does temporary data,
    of which the busiest tile's share counts for every tile.
    """
    alike = {name: getattr(chip.busiest, name) for name in CATEGORIES if name not in _BY_TILE}
    always = sum(bytes_ for name, bytes_ in alike.items() if name not in _NOT_ALWAYS_LIVE)
    tiles: dict[str, list[int]] = {name: [bytes_] for name, bytes_ in alike.items()}
    tiles["variables"] = [tile_bytes - always for tile_bytes in chip.always_live]
    temporary = alike["temporary"]
    pairs = zip(chip.peak, chip.always_live, strict=True)
    tiles["activations"] = [peak - live - temporary for peak, live in pairs]
    return {name: tiles[name] for name in CATEGORIES}


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
