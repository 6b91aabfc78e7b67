"""Required orders and wishes: what `Sequencer` says, beside what a naive checker finds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import Graph, Op, OpSettings, OrderedPair
from popc.ops.build import build
from popc.ops.check_order import find_stuck
from popc.ops.load import find_load_ops
from popc.ops.sequencer import Sequencer, give_up_wishes
from popc.options import ScheduleOptions
from popc.schedule import build_schedule, check_schedule
from tests.support.random_graphs import graphs
from tests.support.small_graphs import SmallGraph


def _relus(count: int) -> tuple[Graph, list[Op]]:
    """``count`` ops that may run in any order."""
    small = SmallGraph()
    x = small.input(4)
    ops = [small.op("Relu", x) for _ in range(count)]
    return small.output(*(op.output for op in ops)), ops


def _may_naively(graph: Graph, first: Op, second: Op) -> bool:
    """Whether all ops could still run if ``first`` had to come before ``second``."""
    if first is second or second in find_load_ops(graph):
        return False
    kept = list(graph.ordering)
    for pair in kept:
        if pair.wished:
            graph.ordering.discard(pair)
    known = any((item.first, item.second) == (first, second) for item in graph.ordering)
    graph.ordering.add(OrderedPair(first, second))
    found = find_stuck(graph)
    if not known:
        graph.ordering.discard(OrderedPair(first, second))
    for pair in kept:
        graph.ordering.add(pair)
    return not found


@settings(deadline=None, max_examples=40)
@given(graph=graphs(nested=False), draw=st.data())
def test_the_sequencer_agrees_with_the_naive_checker(graph: Graph, draw: st.DataObject) -> None:
    sequencer = Sequencer(graph, graph)
    number = st.integers(0, len(graph.ops) - 1)
    for _ in range(draw.draw(st.integers(1, 12))):
        kind = draw.draw(st.sampled_from(["require", "require", "wish", "bins"]))
        first, second = (graph.ops[draw.draw(number)] for _ in range(2))
        if kind == "bins":
            wanted = {op: draw.draw(st.integers(0, 2)) for op in {first: 0, second: 0}}
            bins = sequencer.put_into_bins(f"partition {draw.draw(st.integers(0, 1))}", wanted)
            assert all(bins.get(op, 2) >= number for op, number in wanted.items())
        elif kind == "wish":
            sequencer.wish(first, second)
        else:
            expected = _may_naively(graph, first, second)
            assert sequencer.may_precede(first, second) == expected
            assert sequencer.require(first, second) == expected
        assert find_stuck(graph) == []
    schedule = build_schedule(graph, ScheduleOptions(scheduler_work_limit=200))
    assert check_schedule(graph, schedule) == []


def test_wishes_give_way_to_what_is_required() -> None:
    graph, (a, b, c, d) = _relus(4)
    sequencer = Sequencer(graph, graph)
    assert sequencer.wish(a, b)
    assert sequencer.wish(b, c)
    assert not sequencer.wish(c, a)
    assert sequencer.wish(a, d)
    assert sequencer.require(c, a)
    assert not sequencer.require(a, c)
    assert {(pair.first, pair.second, pair.wished) for pair in graph.ordering} in (
        {(c, a, False), (b, c, True), (a, d, True)},
        {(c, a, False), (a, b, True), (a, d, True)},
    )


def test_a_wish_that_is_required_later_stays() -> None:
    graph, (a, b) = _relus(2)
    sequencer = Sequencer(graph, graph)
    assert sequencer.wish(a, b)
    assert sequencer.require(a, b, tied=True)
    assert not sequencer.require(b, a)
    assert list(graph.ordering) == [OrderedPair(a, b, tied=True)]


def test_bins_are_raised_to_what_has_to_come_before() -> None:
    graph, (a, b, c, d) = _relus(4)
    sequencer = Sequencer(graph, graph)
    assert sequencer.require(a, b)
    assert sequencer.require(b, c)
    assert sequencer.put_into_bins("p", {a: 2, c: 1, d: 0}) == {a: 2, c: 2, d: 0}
    assert not sequencer.may_precede(a, d)
    assert find_stuck(graph) == []


def test_what_runs_at_load_time_comes_first_anyway() -> None:
    small = SmallGraph()
    settled = small.op("Relu", small.constant([1.0, 2.0]))
    other = small.op("Neg", small.input(2))
    graph = small.output(settled.output, other.output)
    sequencer = Sequencer(graph, graph)
    assert sequencer.may_precede(settled, other)
    assert not sequencer.require(other, settled)
    assert not sequencer.wish(other, settled)


def test_wishes_are_given_up_when_a_graph_has_changed() -> None:
    graph, (a, b) = _relus(2)
    graph.ordering.add(OrderedPair(a, b, wished=True))
    graph.set_input(a, 0, b.output)
    assert find_stuck(graph)
    assert give_up_wishes(graph) == 1
    assert find_stuck(graph) == []
    assert list(graph.ordering) == []


def test_looking_changes_no_order() -> None:
    graph, (a, b, c) = _relus(3)
    graph.ordering.add(OrderedPair(a, b, wished=True))
    graph.ordering.add(OrderedPair(a, c))
    before = list(graph.ordering)
    sequencer = Sequencer(graph, graph)
    assert (sequencer.given_up, list(graph.ordering)) == (0, before)
    assert sequencer.require(b, a)
    assert sequencer.given_up == 1


@pytest.mark.parametrize("first_bin", [0, 1])
def test_the_naive_checker_finds_what_waits(first_bin: int) -> None:
    graph, (a, b) = _relus(2)
    for op, number in ((a, first_bin), (b, 1 - first_bin)):
        op.settings = OpSettings(bins=(("p", number),))
    assert find_stuck(graph) == []
    graph.ordering.add(OrderedPair(a, b))
    assert bool(find_stuck(graph)) == (first_bin == 1)


def test_many_orders_in_a_large_graph() -> None:
    """Each question looks no further than from the place of one op to that of the other."""
    small = SmallGraph()
    x = small.input(4)
    chains: list[list[Op]] = []
    for _ in range(20):
        chain = [build(small.graph, "Relu", [x])]
        for _ in range(59):
            chain.append(build(small.graph, "Relu", chain[-1].outputs))
        chains.append(chain)
    graph = small.output(*(chain[-1].output for chain in chains))
    sequencer = Sequencer(graph, graph)
    for one, other in pairwise(chains):
        assert all(sequencer.require(a, b) for a, b in zip(one, other[1:], strict=False))
        assert not sequencer.require(other[50], one[1])
    assert find_stuck(graph) == []
