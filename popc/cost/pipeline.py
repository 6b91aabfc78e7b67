"""The work of chips at the same time: the stages of a pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any, Final

from popc.cost.phases import Cycles
from popc.ir import Graph, Op
from popc.ops.main_loops import PIPELINE, step_of_pipeline
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["PipelineCost", "StageCost", "Timeline", "pipeline_step"]

_BESIDE: Final = -1  # ops of the loop that belong to no step


def pipeline_step(graph: Graph, op: Op) -> int | None:
    """The step of a pipeline in which ``op`` of ``graph`` runs, if it is in one."""
    found = step_of_pipeline(op)
    if found is None and graph.name == PIPELINE:
        return _BESIDE
    return found


@frozen
class StageCost:
    """The costs of one chip in a cycle in which all stages run."""

    ipu: int
    stages: tuple[int, ...]
    cycles: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"ipu": self.ipu, "stages": list(self.stages), "cycles": self.cycles}


@frozen
class PipelineCost:
    """The costs of a pipeline: the slowest chip of each step counts.

    Attributes:
        fill, flush: Cycles while it fills and is flushed.
        cycle: Those of one turn in which all stages run, copies between chips included.
        turns: The number of these turns.
        copies: Of ``cycle``, what copies between chips take.
        busy: What each chip does in such a turn.
        hidden: What would be added if chips ran one after the other, in the whole run.
    """

    fill: int
    cycle: int
    turns: int
    flush: int
    copies: int
    busy: tuple[StageCost, ...]
    hidden: Cycles

    @property
    def total(self) -> int:
        """The cycles of one pass through the pipeline."""
        return self.fill + self.turns * self.cycle + self.flush

    @property
    def slowest(self) -> StageCost | None:
        """The chip that the others wait for."""
        return max(self.busy, key=lambda chip: chip.cycles, default=None)

    @property
    def utilisation(self) -> float:
        """The part of the time in which chips are busy, when all stages run."""
        if not self.busy or not self.cycle:
            return 0.0
        return sum(chip.cycles for chip in self.busy) / (len(self.busy) * self.cycle)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "fill_cycles": self.fill,
            "turn_cycles": self.cycle,
            "turns": self.turns,
            "flush_cycles": self.flush,
            "copy_cycles_per_turn": self.copies,
            "hidden_cycles": self.hidden.total,
            "hidden": {
                member.name: getattr(self.hidden, member.name) for member in fields(self.hidden)
            },
            "utilisation": self.utilisation,
            "chips": [chip.to_dict() for chip in self.busy],
        }


@mutable
class _Step:
    """The work at one time: cycles by chip."""

    times: int = 0
    chips: dict[int, Cycles] = field(default_factory=lambda: defaultdict(Cycles))
    stages: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def longest(self) -> Cycles:
        return max(self.chips.values(), key=lambda chip: chip.total, default=Cycles())


class Timeline:
    """The steps of a pipeline, noted op by op."""

    def __init__(self) -> None:
        self._inside: dict[int, _Step] = {}
        self._outside: dict[int, _Step] = {}
        self._loop = 0
        self._turns = 0

    def enter(self, step: int, turns: int) -> None:
        """Note the place among the steps of the loop in which all stages run."""
        self._loop, self._turns = step, turns

    def note(self, step: tuple[bool, int], op: Op, chip: int, cost: tuple[Cycles, int]) -> None:
        """Note an op.

        Args:
            step: Whether it is in the loop in which all stages run, and the number of its step.
            op: The op.
            chip: Where it runs.
            cost: Its cycles for a single run, and how often it runs in all.
        """
        inside, number = step
        cycles, times = cost
        found = (self._inside if inside else self._outside).setdefault(number, _Step())
        found.chips[chip] = found.chips[chip] + cycles
        found.times = max(found.times, times)
        if op.settings.pipeline_stage is not None:
            found.stages[chip].add(op.settings.pipeline_stage)

    def cost(self) -> PipelineCost | None:
        """The costs found; ``None`` if there is no pipeline."""
        if not self._inside:
            return None
        fill = [step for number, step in self._outside.items() if number < self._loop]
        flush = [step for number, step in self._outside.items() if number > self._loop]
        copies = [step for number, step in self._inside.items() if number > 0 and number % 2]
        return PipelineCost(
            fill=_duration(fill),
            cycle=_duration(self._inside.values()),
            turns=self._turns,
            flush=_duration(flush),
            copies=_duration(copies),
            busy=_busy(self._inside),
            hidden=_hidden([*self._outside.values(), *self._inside.values()]),
        )


def _duration(steps: Iterable[_Step]) -> int:
    return sum(step.longest.total for step in steps)


def _busy(steps: Mapping[int, _Step]) -> tuple[StageCost, ...]:
    cycles: dict[int, int] = defaultdict(int)
    stages: dict[int, set[int]] = defaultdict(set)
    for step in steps.values():
        for chip, spent in step.chips.items():
            cycles[chip] += spent.total
            stages[chip] |= step.stages.get(chip, set())
    return tuple(
        StageCost(chip, tuple(sorted(stages[chip])), cycles[chip]) for chip in sorted(cycles)
    )


def _hidden(steps: Iterable[_Step]) -> Cycles:
    total = Cycles()
    for step in steps:
        for chip in step.chips.values():
            total = total + chip * step.times
        total = total + step.longest * -step.times
    return total
