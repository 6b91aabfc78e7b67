"""Measures, simplification, bounds and the exact search, against counting from scratch."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.random_orders import make_problem
from popc.ir import Graph
from popc.ops.aliases import find_aliases
from popc.options import ScheduleOptions, TieBreaker
from popc.schedule import reach
from popc.schedule.algorithms import (
    clustering_order,
    kahn_order,
    list_order,
    look_ahead_order,
    post_order,
    shortest_path_order,
)
from popc.schedule.algorithms.kahn import order_by_definition
from popc.schedule.bound import bound_peak
from popc.schedule.build_problem import build_problem
from popc.schedule.choice import Chooser
from popc.schedule.cuts import find_cuts, restrict
from popc.schedule.effort import Effort
from popc.schedule.exact import search_exactly
from popc.schedule.flat import find_native, flattened
from popc.schedule.levels import without_levels
from popc.schedule.measures import measure, measure_steps, steps_by_definition
from popc.schedule.optimum import find_lowest_peak
from popc.schedule.parts import find_parts
from popc.schedule.problem import OrderingProblem
from popc.schedule.reach import find_followed
from popc.schedule.shift import ShiftLimits, descend, shift_blocks, shift_by_definition
from popc.schedule.simplify import simplify
from tests.support.random_graphs import graphs
from tests.support.random_problems import all_orders, is_legal, lowest_peak, naive_steps, problems

_ALGORITHMS: dict[str, Callable[[OrderingProblem], list[int]]] = {
    "greedy": lambda problem: kahn_order(problem, TieBreaker.GREEDY),
    "fifo": lambda problem: kahn_order(problem, TieBreaker.FIFO),
    "random": lambda problem: kahn_order(problem, TieBreaker.RANDOM),
    "clustering": clustering_order,
    "post_order": post_order,
    "look_ahead": lambda problem: look_ahead_order(problem, 3, 20),
    "shortest_path": shortest_path_order,
}
_ENDLESS = Effort(1 << 60)


def _posed(graph: Graph, most: int) -> list[OrderingProblem]:
    """The problems of a graph's parts that are not too large for counting."""
    aliases = find_aliases(graph)
    found = [build_problem(part, aliases, lambda op: 64) for part in find_parts(graph)]
    return [problem for problem in found if len(problem) <= most]


# -- measures --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(problem=problems())
def test_steps_are_what_counting_from_scratch_says(problem: OrderingProblem) -> None:
    for algorithm in _ALGORITHMS.values():
        order = algorithm(problem)
        steps = naive_steps(problem, order)
        assert measure_steps(problem, order) == steps_by_definition(problem, order) == steps
        cost = measure(problem, order)
        assert (cost.peak, cost.total) == (max([problem.floor, *steps]), sum(steps))


@settings(deadline=None, max_examples=100)
@given(problem=problems(levels=True), data=st.data())
def test_orders_made_in_c_are_those_made_in_python(
    problem: OrderingProblem, data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.integers(0, 3), min_size=len(problem), max_size=len(problem)))
    assert list_order(problem, keys) == order_by_definition(problem, keys)
    assert kahn_order(problem, TieBreaker.GREEDY) == order_by_definition(problem, None)


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_so_they_are_for_graphs(graph: Graph) -> None:
    for problem in _posed(graph, 30):
        order = kahn_order(problem, TieBreaker.RANDOM)
        assert measure_steps(problem, order) == naive_steps(problem, order)


@pytest.mark.parametrize("name", list(_ALGORITHMS))
@settings(deadline=None, max_examples=60)
@given(problem=problems(12, levels=True))
def test_every_algorithm_makes_legal_orders(name: str, problem: OrderingProblem) -> None:
    order = _ALGORITHMS[name](problem)
    assert is_legal(problem, order)
    assert _ALGORITHMS[name](problem) == order


def _naive_greedy(problem: OrderingProblem) -> list[int]:
    """The rule by the letter: recompute everything at each step, take the last of the best."""
    ready = [node for node, count in enumerate(problem.waiting) if count == 0]
    order: list[int] = []

    def badness(node: int) -> tuple[int, int, int]:
        tied = sum((a == node) - (b == node) for a, b in problem.ties)
        appears = sum(problem.weights[buffer] for buffer in problem.makes[node])
        dies = sum(
            problem.frees[buffer]
            for buffer in problem.reads[node]
            if not problem.stays[buffer]
            and all(
                other in order or other == node
                for other, buffers in enumerate(problem.reads)
                if buffer in buffers
            )
        )
        return -problem.ranks[node], tied, appears - dies

    while ready:
        best = min(map(badness, ready))
        node = [node for node in ready if badness(node) == best][-1]
        ready.remove(node)
        order.append(node)
        ready += [
            other
            for other in problem.successors[node]
            if all(
                earlier in order
                for earlier, others in enumerate(problem.successors)
                if other in others
            )
        ]
    return order


@settings(deadline=None, max_examples=150)
@given(problem=problems(12, levels=True))
def test_greedy_does_what_its_definition_says(problem: OrderingProblem) -> None:
    assert kahn_order(problem, TieBreaker.GREEDY) == _naive_greedy(problem)


# -- the lowest peak -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(problem=problems())
def test_the_lowest_peak_is_found(problem: OrderingProblem) -> None:
    lowest = lowest_peak(problem)
    assert bound_peak(problem) <= lowest
    found = search_exactly(problem, floor=0, bound=lowest + 1, effort=_ENDLESS)
    assert found.order is not None
    assert is_legal(problem, found.order)
    assert measure(problem, found.order).peak == lowest
    assert found.lower == lowest
    below = search_exactly(problem, floor=0, bound=lowest, effort=_ENDLESS)
    assert (below.order, below.lower) == (None, lowest)


@settings(deadline=None, max_examples=300)
@given(problem=problems())
def test_simplifying_keeps_the_lowest_peak(problem: OrderingProblem) -> None:
    smaller = simplify(problem)
    assert lowest_peak(smaller) == lowest_peak(problem)
    for order in (kahn_order(smaller, TieBreaker.GREEDY), kahn_order(smaller, TieBreaker.FIFO)):
        whole = list(smaller.expand(order))
        assert is_legal(problem, whole)
        assert measure(problem, whole).peak <= measure(smaller, order).peak


@settings(deadline=None, max_examples=100)
@given(graph=graphs(8))
def test_both_hold_for_graphs(graph: Graph) -> None:
    for problem in _posed(graph, 10):
        lowest = lowest_peak(problem)
        found = find_lowest_peak(problem, lowest + 1, _ENDLESS, closure_threshold=100)
        assert found.order is not None
        assert measure(problem, found.order).peak == found.lower == lowest
        smaller = simplify(problem)
        assert lowest_peak(smaller) == lowest
        assert bound_peak(smaller) <= lowest


@settings(deadline=None, max_examples=60)
@given(problem=problems())
def test_with_little_effort_nothing_wrong_is_claimed(problem: OrderingProblem) -> None:
    lowest = lowest_peak(problem)
    start = measure(problem, kahn_order(problem, TieBreaker.FIFO)).peak
    for work in (0, 1, 5, 20):
        found = find_lowest_peak(problem, start, Effort(work), closure_threshold=0)
        assert found.lower <= lowest
        if found.order is not None:
            assert is_legal(problem, found.order)
            assert lowest <= measure(problem, found.order).peak < start
    late = find_lowest_peak(problem, start, Effort(1 << 60, lambda: True), closure_threshold=100)
    assert late.lower <= lowest


# -- regions ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(problem=problems(7))
def test_cuts_are_the_nodes_that_never_move(problem: OrderingProblem) -> None:
    orders = list(all_orders(problem))
    cuts = find_cuts(problem, orders[0])
    for place in range(len(problem)):
        heads = {frozenset(order[:place]) for order in orders}
        fixed = len({order[place] for order in orders}) == len(heads) == 1
        assert (place in cuts) == fixed


@settings(deadline=None, max_examples=100)
@given(problem=problems(9))
def test_a_region_is_measured_as_in_the_whole(problem: OrderingProblem) -> None:
    order = kahn_order(problem, TieBreaker.GREEDY)
    steps = measure_steps(problem, order)
    for low in range(len(order)):
        for high in range(low + 1, len(order) + 1):
            part = restrict(problem, order, steps, low, high)
            inside = list(range(high - low))
            assert measure_steps(part, inside) == steps[low:high]
            assert bound_peak(part) <= lowest_peak(part) <= max(part.floor, *steps[low:high])


@settings(deadline=None, max_examples=60)
@given(problem=problems(9), data=st.data(), near=st.sampled_from([0, 2, 100]))
def test_marks_of_what_follows(problem: OrderingProblem, data: st.DataObject, near: int) -> None:
    marks = st.sets(st.integers(0, 3))
    lists = st.lists(marks, min_size=len(problem), max_size=len(problem))
    held, asked = (dict(enumerate(data.draw(lists))) for _ in range(2))
    order = problem.topological()
    after: dict[int, set[int]] = {}
    for node in reversed(order):
        later = problem.successors[node]
        after[node] = {mark for other in later for mark in held[other] | after[other]}
    holders = {mark: {node for node in order if mark in held[node]} for mark in range(4)}
    expected = {(node, mark) for node in order for mark in asked[node] & after[node]}
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(reach, "_NEAR", near)
        assert find_followed(order, problem.successors, holders, asked) == expected


# -- local search ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(problem=problems(10, levels=True))
def test_local_search_makes_orders_better_only(problem: OrderingProblem) -> None:
    order = kahn_order(problem, TieBreaker.RANDOM)
    before = measure(problem, order)
    shifted = shift_blocks(problem, order, _ENDLESS, ShiftLimits())
    after = measure(problem, shifted.order)
    assert is_legal(problem, shifted.order)
    assert (after.attraction, after.stretch) <= (before.attraction, before.stretch)
    assert after.peak <= before.peak
    assert shifted.moves == 0 or after < before
    again = shift_blocks(problem, shifted.order, _ENDLESS, ShiftLimits())
    assert again.moves == 0


@settings(deadline=None, max_examples=30)
@given(problem=problems(10))
def test_local_search_keeps_to_its_limits(problem: OrderingProblem) -> None:
    order = kahn_order(problem, TieBreaker.RANDOM)
    assert shift_blocks(problem, order, _ENDLESS, ShiftLimits(moves=0)).order == tuple(order)
    assert shift_blocks(problem, order, _ENDLESS, ShiftLimits(moves=1)).moves <= 1
    late = shift_blocks(problem, order, Effort(1 << 60, lambda: True), ShiftLimits())
    assert late.order == tuple(order)
    settled = shift_blocks(problem, order, _ENDLESS, ShiftLimits())
    idle = shift_blocks(problem, settled.order, _ENDLESS, ShiftLimits(idle=20))
    all_ = shift_blocks(problem, settled.order, _ENDLESS, ShiftLimits())
    assert idle.order == settled.order
    assert idle.work == all_.work or 20 < idle.work < 20 + 4 * len(order)


@settings(deadline=None, max_examples=100)
@given(
    problem=problems(12, levels=True),
    limits=st.builds(
        ShiftLimits, st.just(1 << 40), st.booleans(), st.integers(1, 13), st.integers(0, 2000)
    ),
    work=st.integers(0, 2000),
)
def test_local_search_in_c_makes_the_same_moves(
    problem: OrderingProblem, limits: ShiftLimits, work: int
) -> None:
    order = kahn_order(problem, TieBreaker.FIFO)
    effort = Effort(work)
    if find_native() is None:
        pytest.skip("the search in C has not been built")
    expected = shift_by_definition(problem, order, effort, limits)
    assert shift_blocks(problem, order, effort, limits) == expected


def test_numbers_too_large_for_c_are_left_to_python() -> None:
    problem = make_problem("layered", 9, seed=1)
    huge = replace(problem, rise=[nbytes << 58 for nbytes in problem.rise])
    order = kahn_order(huge, TieBreaker.FIFO)
    assert flattened(huge, order) is None
    found = shift_blocks(huge, order, _ENDLESS, ShiftLimits())
    assert measure(huge, found.order) <= measure(huge, order)


_ANY_NUMBERS = range(10, 16)  # columns that do not hold numbers of nodes, buffers or items


def test_c_refuses_tables_that_do_not_fit() -> None:
    native = find_native()
    if native is None:
        pytest.skip("the search in C has not been built")
    problem = make_problem("layered", 9, seed=1)
    tables = flattened(problem, range(9))
    assert tables is not None
    nodes = array("q", range(9))
    for column in range(len(tables.columns)):
        for changed in ([], [7, *tables.columns[column]], [-1] * len(tables.columns[column])):
            columns = list(tables.columns)
            columns[column] = array("q", changed)
            if changed == list(tables.columns[column]):
                continue
            if column in {5, 10, 11, 12, 13, 14, 15} and len(changed) == len(
                tables.columns[column]
            ):
                continue  # any numbers are allowed
            with pytest.raises(ValueError, match="do not fit together"):
                native.move_blocks(
                    tuple(columns), array("q", nodes), nodes, 0, *ShiftLimits(), 9, bool
                )
            with pytest.raises(ValueError, match="do not fit together"):
                native.measure_steps(tuple(columns), nodes, array("q", nodes), 0)
            with pytest.raises(ValueError, match="do not fit together"):
                native.order_nodes(tuple(columns), array("q", nodes), nodes, 0)
    for order, steps in ((nodes[1:], nodes[:]), (nodes, nodes[1:]), (array("q", [9] * 9), nodes)):
        with pytest.raises(ValueError, match="do not fit together"):
            native.measure_steps(tables.columns, order, array("q", steps), 0)


@pytest.mark.parametrize("family", ["layered", "scattered", "series_parallel"])
def test_the_chosen_order_is_below_any_that_is_not_shifted(family: str) -> None:
    problem = make_problem(family, 100, seed=3)
    found = Chooser(ScheduleOptions()).order(problem)
    assert is_legal(problem, found.order)
    lowest = min(measure(problem, make(problem)).peak for make in _ALGORITHMS.values())
    assert found.lower <= found.cost.peak < lowest


def test_windows_of_growing_size_share_one_effort() -> None:
    problem = make_problem("scattered", 80, seed=2)
    order = kahn_order(problem, TieBreaker.FIFO)
    whole = descend(problem, order, _ENDLESS, moves=1 << 40, keeps_peak=False)
    part = descend(problem, order, Effort(2000), moves=1 << 40, keeps_peak=False)
    assert part.work <= 2500  # it ends with the block that is too much
    few = descend(problem, order, _ENDLESS, moves=3, keeps_peak=False)
    assert few.moves == 3
    totals = [measure(problem, found.order).total for found in (whole, part, few)]
    assert totals == sorted(set(totals))


def test_a_later_look_goes_on_where_an_earlier_one_has_ended() -> None:
    problem = make_problem("scattered", 80, seed=2)
    look = partial(descend, problem, effort=_ENDLESS, moves=1 << 40, keeps_peak=False)
    first = look(order=kahn_order(problem, TieBreaker.FIFO), is_first_look=True)
    assert (first.looked, first.is_settled) == (1, False)
    later = look(order=first.order, looked=first.looked)
    assert later.is_settled
    assert look(order=later.order).moves == 0  # narrow windows have nothing that wide ones lack


# -- priorities ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(problem=problems(7, levels=True))
def test_barriers_put_high_priorities_and_what_they_need_first(problem: OrderingProblem) -> None:
    level_free = without_levels(problem)
    assert not level_free.has_levels
    order = [node for node in kahn_order(level_free, TieBreaker.GREEDY) if node < len(problem)]
    assert is_legal(problem, order)
    needed = list(problem.ranks)
    for node in reversed(problem.topological()):
        for other in problem.successors[node]:
            needed[node] = max(needed[node], needed[other])
    assert [needed[node] for node in order] == sorted(needed, reverse=True)


@settings(deadline=None, max_examples=60)
@given(problem=problems(7))
def test_without_priorities_there_are_no_barriers(problem: OrderingProblem) -> None:
    assert without_levels(problem) == replace(problem, ties=[])
