"""The search on made-up spaces: deterministic, within budget, and what it says is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from popc.study.advice import Change, Outcome, Trial
from popc.study.tuning import OBJECTIVES, Dimension, Evaluator, Findings, pareto_front, search

_SPACE = [
    Dimension("a", (1, 2, 3, 4)),
    Dimension("b", (True,)),
    Dimension("idle", ("x", "y")),
    Dimension("c", (0.1, 0.5, 0.9)),
    Dimension("never", (7,)),
]


def _cost(point: dict[str, Any]) -> Outcome:
    """Fast with a=3 and b together; memory falls with c; "never" cannot be compiled."""
    if "never" in point:
        return Outcome(refused="no such program")
    cycles = 10_000 - 500 * point.get("a", 0)
    cycles -= 4_000 if point.get("a") == 3 and point.get("b") else 0
    cycles += 1_000 if point.get("b") else 0
    peak = 5_000 - int(3_000 * point.get("c", 0)) + 300 * point.get("a", 0)
    cycles += int(2_000 * point.get("c", 0) ** 2)
    excess = peak - 5_500
    return Outcome(cycles=cycles, peak_bytes=peak, excess=excess, archive_bytes=1_000)


def _searched(
    budget: int = 300,
    *,
    seed: int = 0,
    objective: str = "cycles",
    cost: Callable[[dict[str, Any]], Outcome] = _cost,
) -> tuple[Findings, list[dict[str, Any]]]:
    planned: list[dict[str, Any]] = []

    def plan(points: Sequence[Any]) -> list[Outcome]:
        planned.extend(dict(point) for point in points)
        return [cost(dict(point)) for point in points]

    found = search(Evaluator(plan, budget), _SPACE, OBJECTIVES[objective], seed)
    return found, planned


def test_options_that_help_together_are_found() -> None:
    found, _ = _searched()
    assert found.best is not None
    assert dict(found.best.change.options) == {"a": 3, "b": True, "c": 0.5}
    assert found.best.outcome.cycles == 10_000 - 1_500 - 4_000 + 1_000 + 500
    assert found.idle == ("idle",)
    assert found.refused == {"never": "no such program"}
    assert set(found.effects) == {"a", "b", "c"}


def test_objectives() -> None:
    by_bytes, _ = _searched(objective="bytes")
    assert by_bytes.best is not None
    assert dict(by_bytes.best.change.options) == {"c": 0.9}
    balanced, _ = _searched(objective="balanced")
    assert balanced.best is not None
    best = balanced.best.outcome
    assert best.cycles * best.peak_bytes < found_product(by_bytes.base)


def found_product(outcome: Outcome) -> int:
    """Cycles times bytes."""
    return outcome.cycles * outcome.peak_bytes


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 80), st.integers(0, 5))
def test_budget_and_seed(budget: int, seed: int) -> None:
    found, planned = _searched(budget, seed=seed)
    again, same = _searched(budget, seed=seed)
    assert planned == same
    assert found == again
    assert len({str(sorted(options.items())) for options in planned}) == len(planned)
    chosen = len(found.best.change.options) if found.best is not None else 0
    assert len(planned) <= budget + 1 + 3 * max(chosen, 3)
    explored = {name for options in planned for name in options}
    assert set(found.unexplored) == {dimension.option for dimension in _SPACE} - explored


def test_nothing_fits() -> None:
    def cost(point: dict[str, Any]) -> Outcome:
        return Outcome(cycles=10, peak_bytes=100, excess=50 - int(10 * point.get("c", 0)))

    found, _ = _searched(cost=cost)
    assert found.best is None
    assert found.front == ()
    assert found.nearest is not None
    assert dict(found.nearest.change.options) == {"c": 0.9}


def test_less_than_a_thousandth_is_no_difference() -> None:
    def cost(point: dict[str, Any]) -> Outcome:
        return Outcome(cycles=10_000, peak_bytes=5_000, archive_bytes=9_755 - 4 * len(point))

    for objective in OBJECTIVES:  # wherever the steps of the ranking lie
        found, _ = _searched(cost=cost, objective=objective)
        assert found.best is not None
        assert found.best.change.options == {}
        assert set(found.idle) == {dimension.option for dimension in _SPACE}


_NUMBERS = st.integers(1, 50)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS), max_size=30))
def test_the_front_is_what_nothing_beats(measures: list[tuple[int, int, int]]) -> None:
    trials = [
        Trial(
            Change({"a": index}),
            Outcome(cycles=1000 * time, peak_bytes=memory, archive_bytes=archive),
        )
        for index, (time, memory, archive) in enumerate(measures)
    ]
    front = pareto_front(trials)
    kept = {measures[point.change.options["a"]] for point in front}
    beaten = {
        point
        for point in measures
        if any(
            other != point and all(a <= b for a, b in zip(other, point, strict=True))
            for other in measures
        )
    }
    assert kept == set(measures) - beaten
    assert len(kept) == len(front)
