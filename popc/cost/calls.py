"""The costs of calling a graph: its code finds operands and leaves results at fixed places.

So each call copies its operands there, and the results from there, which some call later reads.
With the strategy ON_ENTER_AND_EXIT all copies exist while the graph runs; with JUST_IN_TIME, each
from where it is first read, or made, to where it is last read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from popc.cost.formulas.numbers import ceil_div
from popc.cost.machine import Machine
from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.ir import Graph, Op, Tensor
from popc.options import CopyingStrategy

__all__ = ["bytes_of_copies", "call_phases"]

# A call and a return, beside the copies.
_CALL_CYCLES = 25


def call_phases(op: Op, machine: Machine) -> Iterator[Phase]:
    """The copies of operands and results, as one step each way, and the call itself."""
    speed = machine.target.tile.memcpy_bytes_per_cycle
    for name, tensors in (("operands", op.present_inputs), ("results", op.outputs)):
        cycles = ceil_div(sum(_share(tensor, machine) for tensor in tensors), speed)
        cycles += _CALL_CYCLES if name == "operands" else 0
        if cycles:
            yield Phase(f"call {name}", compute=cycles, launches=1, vertex="Copy")


def bytes_of_copies(
    graph: Graph, order: Sequence[Op], machine: Machine, strategy: CopyingStrategy
) -> list[int]:
    """The bytes of copies that a tile holds while each op of ``order`` runs.

    ``graph`` is the one that is called.
    """
    copied = (*graph.inputs, *graph.outputs)
    if strategy is CopyingStrategy.ON_ENTER_AND_EXIT:
        return [sum(_share(tensor, machine) for tensor in copied)] * len(order)
    numbers = {op: number for number, op in enumerate(order)}
    changes = [0] * (len(order) + 1)
    for tensor in copied:
        steps = [numbers[op] for op in (tensor.producer, *tensor.uses) if op in numbers]
        if steps:
            changes[min(steps)] += _share(tensor, machine)
            changes[max(steps) + 1] -= _share(tensor, machine)
    return list(accumulate(changes[:-1]))


def _share(tensor: Tensor, machine: Machine) -> int:
    """The bytes of ``tensor`` on a tile."""
    type_ = tensor.type
    return machine.share(type_.size, type_.dtype) * device_bytes(type_.dtype)
