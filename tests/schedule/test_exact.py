"""The exact search in C, against its definition in Python."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.random_orders import make_problem
from popc.options import TieBreaker
from popc.schedule import flat
from popc.schedule.algorithms import kahn_order
from popc.schedule.effort import Effort
from popc.schedule.exact import search_by_definition, search_exactly
from popc.schedule.flat import find_native, flattened
from popc.schedule.measures import measure
from popc.schedule.problem import OrderingProblem
from popc.schedule.simplify import simplify
from tests.support.random_problems import is_legal, problems

pytestmark = pytest.mark.skipif(find_native() is None, reason="the search in C has not been built")


@settings(deadline=None, max_examples=100)
@given(problem=problems(12), work=st.integers(0, 400), share=st.floats(0.2, 1.2))
def test_the_same_states_are_looked_at(problem: OrderingProblem, work: int, share: float) -> None:
    known = measure(problem, kahn_order(problem, TieBreaker.RANDOM)).peak
    floor, bound, effort = problem.floor, max(int(share * known), problem.floor + 1), Effort(work)
    expected = search_by_definition(problem, floor, bound, effort)
    assert search_exactly(problem, floor=floor, bound=bound, effort=effort) == expected


@pytest.mark.parametrize("nodes", [63, 64, 65, 150])
@pytest.mark.parametrize("family", ["layered", "scattered", "series_parallel"])
def test_sets_of_several_words(family: str, nodes: int) -> None:
    problem = simplify(make_problem(family, nodes, seed=4), reduces=True)
    bound = measure(problem, kahn_order(problem, TieBreaker.FIFO)).peak
    effort = Effort(3000)
    expected = search_by_definition(problem, problem.floor, bound, effort)
    found = search_exactly(problem, floor=problem.floor, bound=bound, effort=effort)
    assert found == expected
    assert found.order is None or is_legal(problem, found.order)


def test_it_ends_when_it_is_late_or_interrupted() -> None:
    problem = make_problem("scattered", 60, seed=2)
    bound = measure(problem, kahn_order(problem, TieBreaker.FIFO)).peak
    late = Effort(1 << 60, lambda: True)
    found = search_exactly(problem, floor=0, bound=bound, effort=late)
    assert found.order is None
    assert found.lower < bound

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_exactly(problem, floor=0, bound=bound, effort=Effort(1 << 60, interrupt))


def test_nobody_waits_twice_for_the_same() -> None:
    native, problem = find_native(), make_problem("layered", 9, seed=1)
    assert native is not None
    problem.successors[0] = [*problem.successors[0], problem.successors[0][0]]
    tables = flattened(problem, range(9))
    assert tables is not None
    with pytest.raises(ValueError, match="do not fit together"):
        native.search_exactly(tables.columns, array("q", range(9)), 0, 0, 1 << 40, 9, bool)


@pytest.mark.parametrize(
    ("functions", "reason"),
    [(None, "has not been built"), (["shift_blocks"], "older than its sources")],
)
def test_it_is_told_why_python_searches(
    functions: list[str] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = functions and SimpleNamespace(**dict.fromkeys(functions))
    monkeypatch.setattr(flat, "_built", lambda: module)
    monkeypatch.setattr(flat, "find_native", flat.find_native.__wrapped__)
    assert flat.find_native() is None
    assert reason in flat.why_missing()
