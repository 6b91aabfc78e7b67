"""When stages run: PopART's formulas, and what the schedules promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc.options import PipelineSchedule
from popc.placement import Timing, time_stages


def _training(chips: list[int], schedule: PipelineSchedule) -> tuple[dict[int, int], Timing]:
    last = len(chips) - 1
    places = dict(enumerate([*chips, *reversed(chips[:-1])]))
    return places, time_stages(places, schedule, last)


@pytest.mark.parametrize("forward", [2, 3, 4, 8])
def test_grouped(forward: int) -> None:
    """A stage begins one cycle after the one before; the pipeline fills in 2 L cycles."""
    _, timing = _training(list(range(forward)), PipelineSchedule.GROUPED)
    assert dict(timing.cycles) == {stage: stage for stage in range(2 * forward - 1)}
    assert timing.depth == 2 * forward - 1
    assert timing.step_count == 1


@pytest.mark.parametrize("forward", [2, 3, 4, 8])
def test_interleaved_needs_half_of_the_cycles(forward: int) -> None:
    places, timing = _training(list(range(forward)), PipelineSchedule.INTERLEAVED)
    assert timing.depth == forward
    assert timing.step_count == 2
    at_once = [(chip, timing.steps[stage]) for stage, chip in places.items()]
    assert len(set(at_once)) == len(at_once)  # a chip never runs two stages in a step


def test_consecutive_stages_of_a_chip_run_together() -> None:
    timing = time_stages({0: 0, 1: 0, 2: 1, 3: 1, 4: 0}, PipelineSchedule.GROUPED, 4)
    assert dict(timing.cycles) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.sampled_from(
        [PipelineSchedule.GROUPED, PipelineSchedule.INTERLEAVED, PipelineSchedule.SEQUENTIAL]
    ),
)
def test_values_arrive_in_time(chips: list[int], schedule: PipelineSchedule) -> None:
    places, timing = _training(chips, schedule)
    assert min(timing.cycles.values()) == 0
    for stage in places:
        if stage + 1 not in places:
            continue
        delay = timing.delay(stage, stage + 1)
        assert delay in (0, 1)
        moves = places[stage] != places[stage + 1]
        later_step = timing.steps[stage + 1] > timing.steps[stage]
        assert delay == 1 or later_step or not moves
