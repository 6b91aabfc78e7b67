"""The number of bytes that are live while each op of a schedule runs.

`footprint` says what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc.ir import Graph, Op
from popc.ops.aliases import find_aliases
from popc.schedule.build_problem import build_problem
from popc.schedule.measures import measure, measure_steps
from popc.schedule.parts import find_parts
from popc_runtime.ground.frozen import frozen

__all__ = ["Liveness", "measure_liveness"]


@frozen
class Liveness:
    """Bytes live while each op of an order runs, their maximum and their sum."""

    steps: tuple[int, ...]
    peak: int
    total: int


def measure_liveness(
    graph: Graph, orders: Mapping[Graph, Sequence[Op]], *, inplace: bool = True
) -> Liveness:
    """The liveness of the top graph under ``orders`` (`Schedule.orders`), which must be legal.

    An op with subgraphs adds the highest of their own peaks to the step it runs in.
    """
    aliases = find_aliases(graph)
    peaks: dict[Graph, int] = {}

    def inner_peak(op: Op) -> int:
        return max(peaks[nested] for nested in op.subgraphs.values())

    for part in find_parts(graph):
        if part.at_load:
            continue
        problem = build_problem(part, aliases, inner_peak, inplace=inplace)
        numbers = {op: number for number, op in enumerate(part.ops)}
        order = [numbers[op] for op in orders[part.graph]]
        order += range(len(numbers), len(problem))  # barriers take no time
        peaks[part.graph] = measure(problem, order).peak
    steps = measure_steps(problem, order)[: len(numbers)]
    return Liveness(tuple(steps), peaks[graph], sum(steps))
