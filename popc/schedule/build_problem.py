"""From the ops of a graph to a scheduling problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from popc.ir import Op
from popc.ops.aliases import Aliases
from popc.ops.constraints import Barrier, Node, Precedence
from popc.schedule.footprint import Footprint, Part, find_footprint
from popc.schedule.problem import OrderingProblem

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
    blocked = set(precedence.successors) - set(precedence.topological())
    if blocked:
        cycle = _find_cycle(precedence, blocked)
        raise ValueError(f"ops wait for each other: {' -> '.join(map(repr, cycle))}")
    footprint = find_footprint(part, aliases, precedence, inner_peak, inplace=inplace)
    # The ops first, in their order; barriers behind them.
    numbers = {node: number for number, node in enumerate(precedence.successors)}
    return _assemble(part, precedence, footprint, numbers)


def _assemble(
    part: Part, precedence: Precedence, footprint: Footprint, numbers: dict[Node, int]
) -> OrderingProblem:
    is_needed = _find_needed(footprint)
    barriers = [node for node in numbers if isinstance(node, Barrier)]
    nothing: list[tuple[()]] = [()] * len(barriers)
    return OrderingProblem(
        members=[() if isinstance(node, Barrier) else (numbers[node],) for node in numbers],
        successors=[[numbers[later] for later in precedence.successors[node]] for node in numbers],
        waiting=[precedence.waiting[node] for node in numbers],
        ranks=_ranks(part.ops) + [0] * len(barriers),
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
        rise=footprint.rise + [0] * len(barriers),
        takes=[*map(tuple, footprint.takes), *nothing],
        initial=tuple(filter(is_needed, footprint.initial)),
        floor=sum(footprint.weights[buffer] for buffer in footprint.initial),
    )


def _ranks(ops: Iterable[Op]) -> list[int]:
    """Priorities as ranks: what matters is their order, not their size."""
    priorities = [op.settings.schedule_priority for op in ops]
    ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities)))}
    return [ranks[priority] for priority in priorities]


def _find_needed(footprint: Footprint) -> Callable[[int], bool]:
    """The buffers that outlive the step in which they appear, and have a size."""
    read = {buffer for buffers in footprint.reads for buffer in buffers}

    def is_needed(buffer: int) -> bool:
        leader = footprint.freed_with[buffer]
        return footprint.frees[leader] > 0 and (leader in read or footprint.stays[leader])

    return is_needed


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
