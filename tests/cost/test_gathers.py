"""Plans of gathers and scatters keep to the tiles and to their memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.cost.planner import GatherProblem, plan_gather, plan_scatter
from popc.target import configure_target, find_target

_TARGET = find_target("ipu2")


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 1024), st.integers(1, 40_000), st.sampled_from([2, 4]))
def test_gathers(lookups: int, length: int, table: int, size: int) -> None:
    plan = plan_gather(GatherProblem(lookups, length, table, size), _TARGET, 383_000)
    assert plan.columns * plan.rows * plan.lookups <= _TARGET.compute_tiles
    assert plan.cycles > 0
    found = -(-lookups // plan.lookups) * -(-length // plan.columns) * size
    assert plan.temporary_bytes >= found


@pytest.mark.parametrize("lanes", ["half", "float"])
@pytest.mark.parametrize(
    ("updates", "length", "table"),
    [(4096, 768, 30_522), (16_384, 1024, 30_522), (8, 16, 4), (1, 1, 1), (5000, 1, 10_000_000)],
)
def test_scatters(updates: int, length: int, table: int, lanes: str) -> None:
    size = 2 if lanes == "half" else 4
    plan = plan_scatter(GatherProblem(updates, length, table, size), lanes, _TARGET, 383_000)
    assert plan.columns * plan.rows * plan.lookups <= _TARGET.compute_tiles
    received = -(-updates // plan.lookups) * -(-length // plan.columns) * size
    assert received <= plan.temporary_bytes <= 383_000
    assert (plan.compute[1] > 0) == (plan.lookups > 1)


def test_more_updates_cost_more() -> None:
    cycles = [
        plan_scatter(GatherProblem(count, 768, 30_522, 2), "half", _TARGET, 383_000).cycles
        for count in (256, 4096, 65_536)
    ]
    assert cycles == sorted(set(cycles))


def test_every_worker_looks_at_all_updates() -> None:
    # A worker has a sixth of the rows of the tile, and passes over updates of the others.
    alone = configure_target(_TARGET, tiles_per_ipu=1)
    few, many = (
        plan_scatter(GatherProblem(count, 4, 600, 2), "half", alone, 1e9) for count in (600, 1200)
    )
    assert many.compute[0] - few.compute[0] == 6 * (100 * (12 + 3) + 500 * 5)
