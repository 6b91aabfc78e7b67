"""Ordered pairs, ties, bins and priorities, and what becomes of them when ops are replaced."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import Graph, Op, OpSettings, OrderedPair, Tensor, format_graph, verify
from popc.ops.build import build
from popc.options import ScheduleOptions
from popc.schedule import Algorithm, Schedule, build_schedule, check_schedule
from tests.support.random_graphs import graphs
from tests.support.small_graphs import SmallGraph


def _relus(count: int) -> tuple[Graph, list[Op]]:
    """``count`` ops that may run in any order."""
    small = SmallGraph()
    x = small.input(4)
    ops = [small.op("Relu", x) for _ in range(count)]
    return small.output(*(op.output for op in ops)), ops


def _order(graph: Graph, algorithm: Algorithm = Algorithm.CHOOSE_BEST) -> list[Op]:
    schedule = build_schedule(graph, ScheduleOptions(scheduling_algorithm=algorithm))
    assert check_schedule(graph, schedule) == []
    return list(schedule.orders[graph])


# -- pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_pairs_are_kept(algorithm: Algorithm) -> None:
    graph, ops = _relus(6)
    wanted = [ops[index] for index in (3, 0, 5, 1, 4, 2)]
    for first, second in pairwise(wanted):
        graph.ordering.add(OrderedPair(first, second))
    assert _order(graph, algorithm) == wanted


@pytest.mark.parametrize("algorithm", [Algorithm.KAHN, Algorithm.CHOOSE_BEST])
def test_tied_ops_stand_together(algorithm: Algorithm) -> None:
    small = SmallGraph()
    x = small.input(4)
    chains = [[small.op("Relu", x)] for _ in range(4)]
    for chain in chains:
        for _ in range(3):
            chain.append(small.op("Neg", chain[-1].output))
    small.output(*(chain[-1].output for chain in chains))
    for first, second in ((chains[0][0], chains[3][1]), (chains[2][1], chains[1][2])):
        small.graph.ordering.add(OrderedPair(first, second, tied=True))
    order = _order(small.graph, algorithm)
    assert abs(order.index(chains[0][0]) - order.index(chains[3][1])) == 1
    assert abs(order.index(chains[2][1]) - order.index(chains[1][2])) == 1


def test_pairs_that_contradict_each_other_are_reported() -> None:
    graph, ops = _relus(2)
    graph.ordering.add(OrderedPair(ops[0], ops[1]))
    graph.ordering.add(OrderedPair(ops[1], ops[0]))
    with pytest.raises(ValueError, match=r"Relu\(Relu\) -> Relu\(Relu_1\) -> Relu\(Relu\)"):
        build_schedule(graph)


def test_pairs_outlive_the_replacement_of_ops() -> None:
    graph, ops = _relus(3)
    graph.ordering.add(OrderedPair(ops[0], ops[1], tied=True))
    graph.ordering.add(OrderedPair(ops[1], ops[2]))
    new = build(graph, "Abs", [ops[1].operand(0)])
    graph.replace_op(ops[1], new.outputs)
    assert list(graph.ordering) == [
        OrderedPair(ops[0], new, tied=True),
        OrderedPair(new, ops[2], tied=False),
    ]
    assert verify(graph) == []
    assert "  Relu(Relu) before Abs(Abs), tied\n  Abs(Abs) before Relu(Relu_2)\n" in format_graph(
        graph
    )


def test_what_surrounded_a_removed_op_stays_in_order() -> None:
    graph, ops = _relus(3)
    graph.ordering.add(OrderedPair(ops[0], ops[1], tied=True))
    graph.ordering.add(OrderedPair(ops[1], ops[2]))
    graph.outputs.remove(ops[1].output)
    graph.output_names.remove(ops[1].output.name)
    graph.remove_op(ops[1])
    assert list(graph.ordering) == [OrderedPair(ops[0], ops[2], tied=False)]
    assert ops[1] not in graph.ordering


def test_an_op_replaced_by_an_earlier_one_hands_nothing_on() -> None:
    graph, ops = _relus(3)
    graph.ordering.add(OrderedPair(ops[0], ops[1]))
    graph.ordering.add(OrderedPair(ops[1], ops[2]))
    graph.replace_op(ops[1], ops[0].outputs)  # as when two equal ops become one
    assert list(graph.ordering) == [OrderedPair(ops[0], ops[2], tied=False)]


def test_pairs_move_with_the_graph_and_can_be_copied() -> None:
    graph, ops = _relus(3)
    graph.ordering.add(OrderedPair(ops[0], ops[1], tied=True))
    graph.ordering.add(OrderedPair(ops[1], ops[2]))
    other = graph.split_off("other")
    assert not list(graph.ordering)
    assert len(list(other.ordering)) == 2
    small, twins = _relus(2)
    other.ordering.copy(dict(zip(ops[:2], twins, strict=True)), small.ordering)
    assert list(small.ordering) == [OrderedPair(twins[0], twins[1], tied=True)]


def test_forgotten_ops_are_a_mistake_that_the_verifier_sees() -> None:
    graph, ops = _relus(1)
    _, strangers = _relus(1)
    graph.ordering.add(OrderedPair(ops[0], strangers[0]))
    assert any("is required, which is not in the graph" in line for line in verify(graph))


# -- bins ------------------------------------------------------------------------------------------


def _put(op: Op, *bins: tuple[str, int]) -> None:
    op.settings = OpSettings(bins=bins)


@pytest.mark.parametrize("algorithm", list(Algorithm))
@settings(deadline=None, max_examples=15)
@given(
    graph=graphs(nested=False, variables=False),
    numbers=st.lists(st.integers(0, 3), max_size=12),
)
def test_bins_come_one_after_the_other(
    algorithm: Algorithm, graph: Graph, numbers: list[int]
) -> None:
    # In the order in which the ops were built, so that bins and data agree.
    for op, number in zip(graph.ops, sorted(numbers), strict=False):
        if number:
            _put(op, ("phase", number), ("all", 0))
    options = ScheduleOptions(scheduling_algorithm=algorithm)
    assert check_schedule(graph, build_schedule(graph, options)) == []


def test_ops_without_a_bin_run_anywhere_and_partitions_are_independent() -> None:
    graph, ops = _relus(5)
    _put(ops[4], ("a", 1), ("b", 7))
    _put(ops[2], ("a", 2))
    _put(ops[0], ("b", 9))
    order = _order(graph)
    assert order.index(ops[4]) < min(order.index(ops[2]), order.index(ops[0]))


def test_bins_that_contradict_data_are_reported() -> None:
    small = SmallGraph()
    first = small.op("Relu", small.input(4))
    second = small.op("Neg", first.output)
    _put(first, ("phase", 2))
    _put(second, ("phase", 1))
    with pytest.raises(ValueError, match=r"barrier phase 1 \| 2"):
        build_schedule(small.output(second.output))


# -- priorities ------------------------------------------------------------------------------------


def _steps(small: SmallGraph, x: Tensor, priority: float) -> list[Op]:
    first = small.op("Relu", x)
    return [first, small.op("Neg", first.output, priority=priority)]


@pytest.mark.parametrize("algorithm", [Algorithm.CHOOSE_BEST, Algorithm.KAHN])
def test_high_priorities_run_early_whatever_it_costs(algorithm: Algorithm) -> None:
    small = SmallGraph()
    x = small.input(4)
    wide = small.op("Expand", x, shape=(100, 4))
    grown = small.op("Exp", wide.output, priority=1.0)
    shrunk = small.op("ReduceMax", small("Exp", x), axes=(0,), keepdims=0)
    last = small.op("ReduceMax", grown.output, axes=(0, 1), keepdims=0)
    small.output(shrunk.output, last.output)
    order = _order(small.graph, algorithm)
    assert order.index(grown) <= 1 + order.index(wide)
    assert order.index(grown) < order.index(shrunk)


def test_what_a_high_priority_waits_for_runs_early_too() -> None:
    small = SmallGraph()
    x = small.input(4)
    others = [small.op("Relu", x) for _ in range(10)]
    early = _steps(small, x, 5.0)
    small.output(*(op.output for op in (*others, early[1])))
    assert _order(small.graph)[:2] == early


def test_low_priorities_run_at_the_end() -> None:
    small = SmallGraph()
    x = small.input(4)
    late = [small.op("Relu", x, priority=float("-inf")) for _ in range(3)]
    rest = [op for _ in range(3) for op in _steps(small, x, 0.0)]
    small.output(*(op.output for op in (*late, *rest)))
    assert set(_order(small.graph)[-3:]) == set(late)


# -- the checker -----------------------------------------------------------------------------------


def test_the_checker_sees_pairs_and_bins() -> None:
    graph, ops = _relus(3)
    graph.ordering.add(OrderedPair(ops[0], ops[1]))
    _put(ops[1], ("phase", 1))
    _put(ops[2], ("phase", 0))
    wrong = Schedule((), {graph: (ops[1], ops[2], ops[0])})
    problems = check_schedule(graph, wrong)
    assert any("which it has to precede" in line for line in problems)
    assert any("runs after a later bin of phase" in line for line in problems)
