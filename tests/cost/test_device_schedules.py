"""The schedule for a chosen target: no other candidate needs fewer bytes of the busiest tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.random_orders import make_model
from popc.compiler import Planned
from popc.devices import costs_on_device, lowest_on_device
from popc.memory import MemoryPlan, plan_memory
from popc.reporting.estimation import costs_of
from popc.schedule import Schedule, build_schedule
from tests.support.compiling import planned_model

_KAHN = {"scheduling_algorithm": "kahn"}


def _busiest(program: Planned) -> int:
    return max(chip.peak_bytes for chip in costs_of(program).memory)


def _planned(family: str, **options: Any) -> Planned:
    settings = {"target": "ipu2", "tiles_per_ipu": 1, **options}
    return planned_model(make_model(family, 30, seed=0), settings)


@pytest.mark.parametrize("family", ["layered", "scattered", "series_parallel"])
def test_kahns_orders_do_not_need_less(family: str) -> None:
    others = [_planned(family, **_KAHN, kahn_tie_breaker=name) for name in ("greedy", "fifo")]
    assert _busiest(_planned(family)) <= min(map(_busiest, others))


def test_a_schedule_that_needs_more_is_replaced() -> None:
    program = _planned("layered", **_KAHN, kahn_tie_breaker="random", swap_limit_scheduler=0)
    graph, options = program.graph, program.options
    worse = build_schedule(graph, options)
    planned: list[Schedule] = []

    def plan(schedule: Schedule) -> MemoryPlan:
        planned.append(schedule)
        return plan_memory(graph, schedule)

    better, plan_of_better, costs = lowest_on_device(graph, worse, options, plan)
    assert better.orders != worse.orders
    assert plan_of_better == plan_memory(graph, better)
    assert [schedule for schedule in planned if schedule is better] == [better]
    assert costs == costs_on_device(graph, better, plan_of_better, options)
    assert lowest_on_device(graph, better, options, plan)[0] is better


@pytest.mark.parametrize("family", ["layered", "scattered"])
def test_costs_that_decided_are_those_of_the_program(family: str) -> None:
    program = _planned(family, tiles_per_ipu=4, available_memory_proportion=0.1)
    assert program.costs is not None
    assert costs_of(program) is program.costs
    assert costs_of(replace(program, costs=None)) == program.costs
