"""The times when the stages of a pipeline run."""

from __future__ import annotations

from collections.abc import Mapping

from popc.options import PipelineSchedule
from popc_runtime.ground.frozen import frozen

__all__ = ["Timing", "time_stages"]


@frozen
class Timing:
    """The times of stages.

    Micro-batch m is in stage s in cycle m + ``cycles[s]``, at step ``steps[s]`` of it.  The stages
    of a step run at the same time, on different chips; values pass between chips after each step.

    Attributes:
        cycles: How many cycles after its first one a micro-batch is in a stage.
        steps: The step of a cycle in which a stage runs.
    """

    cycles: Mapping[int, int]
    steps: Mapping[int, int]

    @property
    def depth(self) -> int:
        """The number of cycles that a micro-batch is on its way."""
        return max(self.cycles.values(), default=0) + 1

    @property
    def step_count(self) -> int:
        """The number of steps of a cycle."""
        return max(self.steps.values(), default=0) + 1

    def delay(self, earlier: int, later: int) -> int:
        """The number of cycles that a value of one stage waits for another one."""
        return self.cycles[later] - self.cycles[earlier]

    def in_order(self) -> list[int]:
        """The stages in the order of a cycle."""
        return sorted(self.cycles, key=lambda stage: (self.steps[stage], stage))


def time_stages(chips: Mapping[int, int], schedule: PipelineSchedule, last_forward: int) -> Timing:
    """The times of stages that run on ``chips``.

    Consecutive stages of one chip run together, in one slot.  GROUPED: one slot after the other
    with each cycle.  INTERLEAVED: a new micro-batch begins with every second step only; a cycle
    has two, in which each chip runs a forward and a backward slot.  Without a backward pass that is
    the same as grouped.  SEQUENTIAL: all slots in one cycle, step by step.

    Args:
        chips: The chip of each stage.
        schedule: One of these.
        last_forward: The last stage of the forward pass, which is the first of the backward pass.
    """
    slots: dict[int, int] = {}
    for number, stage in enumerate(stages := sorted(chips)):
        before = stages[number - 1] if number else stage
        moves = chips[before] != chips[stage]
        slots[stage] = slots[before] + moves if number else 0
    if schedule is PipelineSchedule.SEQUENTIAL:
        return Timing(dict.fromkeys(slots, 0), slots)
    turn = slots.get(last_forward, max(slots.values(), default=0))
    if schedule is PipelineSchedule.INTERLEAVED and turn < max(slots.values(), default=0):
        times = {stage: slot + (slot > turn) for stage, slot in slots.items()}
        return Timing(
            {stage: time // 2 for stage, time in times.items()},
            {stage: time % 2 for stage, time in times.items()},
        )
    return Timing(slots, dict.fromkeys(slots, 0))
