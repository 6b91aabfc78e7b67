"""How many bytes are live while each op runs, if every tensor has memory of its own.

This is the measure that schedules are chosen and compared by.  The memory planner, which knows
views and in-place ops, does better than it says.

What counts: the outputs of the ops in question and, in the top graph, its inputs.  Constants,
variables and values computed at load time have memory of their own for good and do not depend on
the order.  The inputs of a nested graph are the business of the op that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from popc.ir import Graph, Op, Tensor, TensorKind

__all__ = ["Liveness", "Residents", "find_residents", "measure_liveness"]


@dataclass(frozen=True, slots=True)
class Liveness:
    """Bytes live while each op of an order runs, their maximum and their sum."""

    steps: tuple[int, ...]
    peak: int
    total: int


@dataclass(frozen=True, slots=True)
class Residents:
    """The tensors whose lifetimes the order of some ops decides.

    Attributes:
        inputs: Those that are live before the first op.
        weights: Their bytes.
        readers: For each the number of ops that read it; one more if it outlives all of them.
    """

    inputs: tuple[Tensor, ...]
    weights: dict[Tensor, int]
    readers: dict[Tensor, int]


def find_residents(graph: Graph, ops: Sequence[Op], inputs: Iterable[Tensor]) -> Residents:
    """The residents of ``ops``, an order of (some of) the ops of ``graph``.

    Args:
        graph: The graph, whose outputs never die.
        ops: The ops.  What other ops read of their results never dies either.
        inputs: Graph inputs to count.
    """
    outputs = frozenset(graph.outputs)
    first = tuple(tensor for tensor in inputs if tensor.kind is not TensorKind.VARIABLE)
    tensors = [*first, *(tensor for op in ops for tensor in op.outputs)]
    weights = {tensor: tensor.type.nbytes for tensor in tensors}
    # Readers outside `ops` are counted too: they never come, so what they read stays.
    readers = {tensor: len(tensor.uses) + (tensor in outputs) for tensor in tensors}
    return Residents(first, weights, readers)


def measure_liveness(graph: Graph, orders: Mapping[Graph, Sequence[Op]]) -> Liveness:
    """The liveness of the top graph under ``orders`` (`Schedule.orders`).

    An op with subgraphs adds the highest of their own peaks to the step it runs in.
    """
    return _measure(graph, orders, graph.inputs)


def _measure(
    graph: Graph, orders: Mapping[Graph, Sequence[Op]], inputs: Sequence[Tensor]
) -> Liveness:
    order = orders[graph]
    residents = find_residents(graph, order, inputs)
    waiting = dict(residents.readers)
    live = sum(residents.weights[tensor] for tensor in residents.inputs if waiting[tensor])
    steps: list[int] = []
    for op in order:
        live += sum(residents.weights[tensor] for tensor in op.outputs)
        steps.append(live + _inner_peak(op, orders))
        live -= sum(residents.weights[tensor] for tensor in _dying(op, waiting))
    return Liveness(tuple(steps), max(steps, default=live), sum(steps))


def _inner_peak(op: Op, orders: Mapping[Graph, Sequence[Op]]) -> int:
    peaks = (_measure(subgraph, orders, ()).peak for subgraph in op.subgraphs.values())
    return max(peaks, default=0)


def _dying(op: Op, waiting: dict[Tensor, int]) -> Iterator[Tensor]:
    """Residents that nobody needs once ``op`` has run; counts its reads off ``waiting``."""
    for tensor in dict.fromkeys(op.present_inputs):
        if tensor in waiting:
            waiting[tensor] -= 1
            if waiting[tensor] == 0:
                yield tensor
    for tensor in op.outputs:
        if waiting[tensor] == 0:
            yield tensor
