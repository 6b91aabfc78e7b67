"""From the ops of a graph to a scheduling problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from popc.ir import Op
from popc.ops.aliases import Aliases
from popc.ops.constraints import Node, Precedence
from popc.schedule.footprint import Footprint, Part, Succession, find_footprint
from popc.schedule.problem import OrderingProblem, order_topologically

__all__ = ["build_problem"]


def build_problem(
    part: Part, aliases: Aliases, inner_peak: Callable[[Op], int], *, inplace: bool = True
) -> OrderingProblem:
    """The problem of ordering the ops of ``part``.

    Args:
        part: The ops; they are numbered in their order.
        aliases: Of the whole program.
        inner_peak: Bytes that the graphs nested in an op need at most.
        inplace: Whether results may take over operands.

    Raises:
        ValueError: ops wait for each other; the message names them.
    """
    precedence = Precedence.among(part.ops, part.graph.ordering)
    # The ops first, in their order; barriers behind them.
    numbers = {node: number for number, node in enumerate(precedence.successors)}
    successors = [[numbers[op] for op in later] for later in precedence.successors.values()]
    links = Succession(order_topologically(successors), successors)
    if len(links.order) < len(numbers):
        blocked = set(precedence.successors) - set(precedence.topological())
        cycle = _find_cycle(precedence, blocked)
        raise ValueError(f"ops wait for each other: {' -> '.join(map(repr, cycle))}")
    footprint = find_footprint(part, aliases, precedence, links, inner_peak, inplace=inplace)
    return _assemble(part, precedence, footprint, links, numbers)


def _assemble(
    part: Part,
    precedence: Precedence,
    footprint: Footprint,
    links: Succession,
    numbers: dict[Node, int],
) -> OrderingProblem:
    is_needed = _find_needed(footprint).__getitem__
    barriers = len(numbers) - len(part.ops)
    nothing: list[tuple[()]] = [()] * barriers
    problem = OrderingProblem(
        members=[(number,) for number in range(len(part.ops))] + [()] * barriers,
        successors=links.successors,
        waiting=[precedence.waiting[node] for node in numbers],
        ranks=_ranks(part.ops) + [0] * barriers,
        ties=[
            (numbers[pair.first], numbers[pair.second])
            for pair in part.graph.ordering
            if pair.tied and pair.first in numbers and pair.second in numbers
        ],
        weights=footprint.weights,
        frees=footprint.frees,
        freed_with=footprint.freed_with,
        stays=footprint.stays,
        reads=[*map(tuple, footprint.reads), *nothing],
        makes=[*(tuple(filter(is_needed, made)) for made in footprint.makes), *nothing],
        rise=footprint.rise + [0] * barriers,
        takes=[*map(tuple, footprint.takes), *nothing],
        initial=tuple(filter(is_needed, footprint.initial)),
        floor=sum(footprint.weights[buffer] for buffer in footprint.initial),
    )
    problem.remembered("topological", lambda _: links.order)
    return problem


def _ranks(ops: Iterable[Op]) -> list[int]:
    """Priorities as ranks: what matters is their order, not their size."""
    priorities = [op.settings.schedule_priority for op in ops]
    ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities)))}
    return [ranks[priority] for priority in priorities]


def _find_needed(footprint: Footprint) -> list[bool]:
    """For each buffer, whether it outlives the step in which it appears, and has a size."""
    read = set().union(*footprint.reads)
    frees, stays = footprint.frees, footprint.stays
    return [
        frees[leader] > 0 and (leader in read or stays[leader]) for leader in footprint.freed_with
    ]


def _find_cycle(precedence: Precedence, blocked: set[Node]) -> list[Node]:
    """A closed walk among ``blocked`` nodes, each waiting for the one before."""
    before = {
        later: node
        for node, others in precedence.successors.items()
        if node in blocked
        for later in others
    }
    node = next(successor for successor in precedence.successors if successor in blocked)
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = before[node]
    walked = list(seen)
    return [node, *reversed(walked[walked.index(node) :])]
