"""The columns that the page shows: tables of thousands of ops must stay small and quick to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.cost import CostReport, Cycles, MemoryReport, OpCost
from popc.reporting.memory import CATEGORIES, by_tile
from popc.reporting.profile import Profile
from popc.reporting.sections import report_data
from popc.reporting.timeline import starts_of

__all__ = ["page_data"]

_KINDS: Final = ("compute", "launch", "exchange", "sync", "host")


def page_data(profile: Profile) -> dict[str, Any]:
    """Everything that the page needs.

    Raises:
        UsageError: the archive does not know what the program costs.
    """
    costs = profile.known_costs()
    data = report_data(profile, ("summary", "graph"))
    graph = data["graph"]
    return {
        "summary": data["summary"],
        "graph": {key: graph[key] for key in ("ops", "instructions", "compute_sets", "exchanges")},
        "vertices": [list(row.values()) for row in graph["vertices_by_type"]],
        "blobs": [
            [blob.name, blob.stored_bytes, blob.raw_bytes] for blob in profile.blobs.values()
        ],
        "kinds": ["compute", "vertex launch", "exchange", "sync", "host exchange"],
        "categories": [name.replace("_", " ") for name in CATEGORIES],
        "cycles": _parts(costs.cycles),
        "pipeline": costs.pipeline.to_dict() if costs.pipeline else None,
        "ops": _ops(costs),
        "chips": [_chip(chip, costs.ops) for chip in costs.memory],
    }


class _Words:
    """Texts by number: names of types and phases are few, and occur often."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of ``text``."""
        return self._numbers.setdefault(text, len(self._numbers))

    def listed(self) -> list[str]:
        """All texts, by number."""
        return list(self._numbers)


def _parts(cycles: Cycles) -> list[int]:
    return [getattr(cycles, kind) for kind in _KINDS]


def _ops(costs: CostReport) -> dict[str, Any]:
    """Ops in order.  ``phases`` has one row of numbers per phase, ``words`` their texts."""
    types, words = _Words(), _Words()
    return {
        "name": [op.name for op in costs.ops],
        "type": [types.number(op.op_type) for op in costs.ops],
        "node": ["" if op.origin == op.name else op.origin for op in costs.ops],
        "ipu": [op.ipu for op in costs.ops],
        "times": [op.times for op in costs.ops],
        "start": starts_of(costs.ops),
        "cycles": [_parts(op.cycles) for op in costs.ops],
        "hidden": [op.hidden for op in costs.ops],
        "temporary": [op.temporary_bytes for op in costs.ops],
        "plans": [list(op.plans) for op in costs.ops],
        "phases": [_phases(op, costs, words) for op in costs.ops],
        "types": types.listed(),
        "words": words.listed(),
    }


def _phases(op: OpCost, costs: CostReport, words: _Words) -> list[list[int]]:
    return [
        [
            words.number(phase.name),
            words.number(phase.vertex),
            *_parts(phase.cycles(costs.target)),
            phase.temporary,
        ]
        for phase in op.phases
    ]


def _chip(chip: MemoryReport, ops: Sequence[OpCost]) -> dict[str, Any]:
    tensors = chip.tensors
    return {
        "limit": chip.limit,
        "peak": list(chip.peak),
        "always": list(chip.always_live),
        "peak_step": chip.peak_step,
        "tiles": list(by_tile(chip).values()),
        "busiest": [getattr(chip.busiest, name) for name in CATEGORIES],
        "average": [getattr(chip.average, name) for name in CATEGORIES],
        "step": [step.name for step in chip.steps],
        "op": _ops_of_steps(chip, ops),
        "live": [step.activations for step in chip.steps],
        "temporary": [step.temporary for step in chip.steps],
        "top": [step.busiest for step in chip.steps],
        "tile": [step.tile for step in chip.steps],
        "tensors": [
            [t.name, t.type, t.kind, t.bytes, t.on_busiest, t.first, t.last, t.origin]
            for t in tensors
        ],
    }


def _ops_of_steps(chip: MemoryReport, ops: Sequence[OpCost]) -> list[int]:
    """The op of each step, -1 if none was charged: both lists are in order of the schedule.

    Branches that are not the slowest have steps but no costs.
    """
    found: list[int] = []
    next_ = 0
    places: dict[str, list[int]] = {}
    for index, op in enumerate(ops):
        for name in {op.name, op.op_type}:
            places.setdefault(name, []).append(index)
    for step in chip.steps:
        index = next((place for place in places.get(step.name, ()) if place >= next_), -1)
        found.append(index)
        next_ = index + 1 if index >= 0 else next_
    return found
