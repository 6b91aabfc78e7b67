"""The search for changes that suffice, on programs that are made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from popc.study.advice import (
    Advice,
    Change,
    Finding,
    Ladder,
    Outcome,
    Pool,
    Trial,
    find_fixes,
    refusal_of,
)


class _Workshop:
    """Stands in for a compiler: bytes and cycles are a function of the options."""

    def __init__(self, cost: Callable[[dict[str, Any]], tuple[int, int]]) -> None:
        self._cost = cost
        self.tried: list[dict[str, Any]] = []

    def try_(self, change: Change) -> Trial:
        options = dict(change.options)
        self.tried.append(options)
        excess, cycles = self._cost(options)
        return Trial(change, Outcome(cycles=cycles, excess=excess, peak_bytes=1000 + excess))


def _ladder(name: str, count: int, **more: Any) -> Ladder:
    return Ladder(name, tuple(Change({name: step + 1}) for step in range(count)), **more)


def _advise(workshop: _Workshop, ladders: list[Ladder], limit: int = 1000) -> Advice:
    base = workshop.try_(Change()).outcome
    workshop.tried.clear()
    return find_fixes(Pool(workshop, None), base, ladders, limit)  # type: ignore[arg-type]


def _options(finding: Finding) -> dict[str, Any]:
    assert finding.trial is not None
    return dict(finding.trial.change.options)


@given(st.integers(1, 90), st.integers(1, 100))
def test_the_mildest_step_that_suffices(count: int, needed: int) -> None:
    workshop = _Workshop(lambda options: (needed - options.get("a", 0), 100 + options.get("a", 0)))
    advice = _advise(workshop, [_ladder("a", count, monotonous=True)])
    assert len(workshop.tried) == advice.planned <= 9
    if needed > count:
        assert not advice.fixes
        assert _options(advice.insufficient[0]) == {"a": count}
    else:
        assert _options(advice.fixes[0]) == {"a": needed}


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6))
def test_the_fastest_of_all_steps(excesses: list[int]) -> None:
    def cost(options: dict[str, Any]) -> tuple[int, int]:
        step = options.get("a", 0)
        return (excesses[step - 1], 100 + (7 * step) % 5) if step else (60, 100)

    advice = _advise(_Workshop(cost), [_ladder("a", len(excesses))])
    fitting = [step for step in range(1, len(excesses) + 1) if excesses[step - 1] <= 0]
    assert bool(advice.fixes) == bool(fitting)
    if fitting:
        assert _options(advice.fixes[0])["a"] == min(fitting, key=lambda step: (7 * step) % 5)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
def test_pairs_are_as_mild_as_possible(first: int, second: int, needed: int) -> None:
    def cost(options: dict[str, Any]) -> tuple[int, int]:
        return needed - options.get("a", 0) - options.get("b", 0), 100 + sum(options.values())

    ladders = [_ladder("a", first, monotonous=True), _ladder("b", second, monotonous=True)]
    advice = _advise(_Workshop(cost), ladders)
    assert bool(advice.fixes) == (first + second >= needed)
    for fix in advice.fixes:
        options = _options(fix)
        assert sum(options.values()) >= needed
        if len(options) == 2:
            assert max(first, second) < needed
            assert sum(options.values()) == needed


def test_three_where_no_two_are_enough() -> None:
    ladders = [_ladder(name, 1) for name in "abcd"]
    weights = {"a": 3, "b": 3, "c": 3, "d": 0}
    advice = _advise(
        _Workshop(lambda options: (8 - sum(weights[name] for name in options), 1)), ladders
    )
    assert [fix.names for fix in advice.fixes] == [("a", "b", "c")]


def test_other_hardware_does_not_end_the_search() -> None:
    def cost(options: dict[str, Any]) -> tuple[int, int]:
        return (-1 if "t" in options else 5 - 3 * len(options)), 10

    ladders = [_ladder("a", 1), _ladder("b", 1), _ladder("t", 1, elsewhere=True)]
    assert {fix.names for fix in _advise(_Workshop(cost), ladders).fixes} == {("a", "b"), ("t",)}


def test_changes_of_the_same_option_are_no_pair() -> None:
    ladders = [_ladder("a", 1), Ladder("again", (Change({"a": 2}),))]
    advice = _advise(_Workshop(lambda options: (5 - options.get("a", 0), 10)), ladders)
    assert {item.names for item in advice.insufficient} == {("a",), ("again",)}


def test_what_changes_results_comes_last() -> None:
    ladders = [_ladder("quick", 1, note="results differ"), _ladder("slow", 1)]
    advice = _advise(
        _Workshop(lambda options: (-len(options) or 1, 9 - len(str(options)))), ladders
    )
    assert [fix.names for fix in advice.fixes] == [("slow",), ("quick",)]


def test_a_bug_does_not_end_the_search() -> None:
    outcome = refusal_of(ValueError("ops wait for each other"))
    assert not outcome.fits
    assert "popc fails" in outcome.refused
