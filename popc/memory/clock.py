"""One clock for everything that runs, load time first; lifetimes are ranges of its ticks.

An op with subgraphs begins with a tick of its own, then each of its graphs takes its ticks (so
that the branches of an If exclude each other in time and may share memory), then it ends.  One
iteration stands for all: what must survive from one to the next lives until the loop ends.  A graph
that is called has a clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import NamedTuple

from popc.ir import Graph, Op
from popc.ops.control import callee_of
from popc.schedule import Schedule
from popc_runtime.ground.frozen import mutable

__all__ = ["Clock", "TickSpan", "execution", "read_clock"]


class TickSpan(NamedTuple):
    """First and last tick."""

    begin: int
    end: int


@mutable
class Clock:
    """The times at which every op and graph runs.

    Attributes:
        now: The next tick; after reading, the number of ticks.
        load_end: The last tick of load time.
    """

    ops: dict[Op, TickSpan] = field(default_factory=dict[Op, TickSpan])
    graphs: dict[Graph, TickSpan] = field(default_factory=dict[Graph, TickSpan])
    now: int = 0
    load_end: int = 0

    def tick(self) -> int:
        """The next tick, which is then over."""
        self.now += 1
        return self.now - 1


def read_clock(graph: Graph, schedule: Schedule) -> Clock:
    """The ticks of a whole program, or of a graph that is called."""
    clock = Clock()
    _read_ops(clock, _load_ops(graph, schedule), schedule)
    clock.load_end = clock.tick()
    _read_graph(clock, graph, schedule)
    return clock


def _load_ops(graph: Graph, schedule: Schedule) -> tuple[Op, ...]:
    is_top = graph is next(iter(schedule.orders))
    return schedule.load if is_top else ()


def _read_graph(clock: Clock, graph: Graph, schedule: Schedule) -> None:
    begin = clock.tick()
    _read_ops(clock, schedule.orders[graph], schedule)
    clock.graphs[graph] = TickSpan(begin, clock.tick())


def _read_ops(clock: Clock, ops: Iterable[Op], schedule: Schedule) -> None:
    for op in ops:
        begin = end = clock.tick()
        if op.subgraphs:
            for subgraph in _inner_graphs(op):
                _read_graph(clock, subgraph, schedule)
            end = clock.tick()
        clock.ops[op] = TickSpan(begin, end)


def execution(graph: Graph, schedule: Schedule) -> Iterator[tuple[Graph, Op]]:
    """Every op with the graph that holds it, in order; before the ops nested in it.

    What a call does is none of it.
    """
    yield from _execution(graph, _load_ops(graph, schedule), schedule)
    yield from _execution(graph, schedule.orders[graph], schedule)


def _execution(graph: Graph, ops: Iterable[Op], schedule: Schedule) -> Iterator[tuple[Graph, Op]]:
    for op in ops:
        yield graph, op
        if op.subgraphs:
            for subgraph in _inner_graphs(op):
                yield from _execution(subgraph, schedule.orders[subgraph], schedule)


def _inner_graphs(op: Op) -> Iterable[Graph]:
    """The graphs that run on the clock of the op that holds them."""
    return op.subgraphs.values() if callee_of(op) is None else ()
