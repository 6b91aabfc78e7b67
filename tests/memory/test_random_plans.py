from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from popc.ir import Graph
from popc.memory import check_plan, format_plan, plan_memory
from popc.options import Algorithm, ScheduleOptions, TieBreaker
from popc.schedule import build_schedule
from tests.support.arena import Arena
from tests.support.random_graphs import first_state, graphs, interpret, random_feeds


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize(
    "algorithm", [Algorithm.CHOOSE_BEST, Algorithm.SHORTEST_PATH, Algorithm.KAHN]
)
@settings(deadline=None, max_examples=30)
@given(graph=graphs())
def test_plans_are_legal_and_compute_the_right_values(
    algorithm: Algorithm, graph: Graph, *, inplace: bool
) -> None:
    options = ScheduleOptions(scheduling_algorithm=algorithm, kahn_tie_breaker=TieBreaker.RANDOM)
    schedule = build_schedule(graph, options, inplace=inplace)
    plan = plan_memory(graph, schedule, inplace=inplace)
    assert check_plan(graph, schedule, plan) == []
    assert plan.peak_bytes <= plan.arena_bytes
    assert inplace or not (plan.inplace or plan.joined)
    arena = Arena(graph, schedule, plan)
    state = first_state(graph)
    for seed in (0, 5):
        feeds = random_feeds(graph, seed)
        for got, want in zip(arena.run(feeds), interpret(graph, feeds, state), strict=True):
            np.testing.assert_array_equal(got, want)
        for variable, value in state.items():
            np.testing.assert_array_equal(arena.view(variable), value)


@settings(deadline=None, max_examples=20)
@given(graph=graphs())
def test_plans_are_repeatable(graph: Graph) -> None:
    schedule = build_schedule(graph)
    plan = plan_memory(graph, schedule)
    again = plan_memory(graph, schedule)
    assert format_plan(plan) == format_plan(again)
    assert plan.placements == again.placements
