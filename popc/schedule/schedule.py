"""The schedule of a graph, and how it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from popc.ir import Graph, Op
from popc.ops.aliases import Aliases, find_aliases
from popc.options import ScheduleOptions
from popc.schedule.build_problem import build_problem
from popc.schedule.choice import Chooser
from popc.schedule.parts import find_parts
from popc.schedule.report import PartReport, report_on
from popc_runtime.ground.frozen import frozen

__all__ = ["Schedule", "build_schedule"]


@frozen
class Schedule:
    """The order of execution.

    Attributes:
        load: Ops of the top graph that depend on constants only, in order; they run once, when the
            program is loaded.
        orders: The order of every graph: of the top graph without the load ops (it comes first),
            and of every graph nested in an op.
        reports: How the orders of parts with more than one op were found, inner graphs first.
        aliases: Those of the graph, where they have been found for that.
    """

    load: tuple[Op, ...]
    orders: Mapping[Graph, tuple[Op, ...]]
    reports: tuple[PartReport, ...] = ()
    aliases: Aliases | None = field(default=None, repr=False, compare=False)


def build_schedule(
    graph: Graph, options: ScheduleOptions | None = None, *, inplace: bool = True
) -> Schedule:
    """Order the ops of ``graph`` and of all graphs nested in it.

    Args:
        graph: The top graph.
        options: What the scheduler does; the defaults if not given.
        inplace: Whether the memory planner will let results take over operands.

    Raises:
        ValueError: a graph has a cycle.
    """
    chooser = Chooser(options or ScheduleOptions())
    aliases = find_aliases(graph)
    load: tuple[Op, ...] = ()
    orders: dict[Graph, tuple[Op, ...]] = {}
    peaks: dict[Graph, int] = {}
    reports: list[PartReport] = []

    def inner_peak(op: Op) -> int:
        return max(peaks[nested] for nested in op.subgraphs.values())

    for part in find_parts(graph):
        problem = build_problem(part, aliases, inner_peak, inplace=inplace)
        choice = chooser.order(problem)
        order = tuple(part.ops[number] for number in choice.order)
        if part.at_load:
            load = order
        else:
            orders[part.graph] = order
            peaks[part.graph] = choice.cost.peak
        if len(order) > 1:
            reports.append(report_on(part, choice))
    in_order = {part: orders[part] for part in graph.walk()}
    return Schedule(load, MappingProxyType(in_order), tuple(reports), aliases)
