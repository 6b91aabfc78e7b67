"""The results of the forward pass that are kept for the backward pass: PopART's methods.

A method is given the forward ops that lead to the loss, in the order in which they run, and names
those to compute once more.  The caller leaves out what cannot be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import isqrt
from typing import Final, TypeAlias

from popc.ir import Op
from popc.options import AutoRecomputation
from popc.placement import last_stage

__all__ = ["METHODS", "Method", "decreasing_intervals"]

Method: TypeAlias = Callable[[Sequence[Op]], Collection[Op]]

_NORMS: Final = frozenset(
    {
        "BatchNormalization",
        "BatchNormalizationTraining",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "RMSNormalization",
    }
)


def _none(ops: Sequence[Op]) -> Collection[Op]:
    del ops
    return ()


def _everything(ops: Sequence[Op]) -> Collection[Op]:
    return ops


def _norms(ops: Sequence[Op]) -> Collection[Op]:
    return [op for op in ops if op.op_type in _NORMS]


def _standard(ops: Sequence[Op]) -> Collection[Op]:
    """All but those whose results are live at the cheapest place of each interval."""
    live = _live_sets(ops)
    sizes = [sum(tensor.type.nbytes for op in tensors for tensor in op.outputs) for tensors in live]
    kept: set[Op] = set()
    for interval in decreasing_intervals(len(ops)):
        kept |= live[min(interval, key=sizes.__getitem__)]
    return [op for op in ops if op not in kept]


def _live_sets(ops: Sequence[Op]) -> list[set[Op]]:
    """After each op: itself, and those whose results later ops read."""
    last = {op: index for index, op in enumerate(ops)}
    for index, op in enumerate(ops):
        for tensor in op.present_inputs:
            if tensor.producer in last:
                last[tensor.producer] = index  # the ops come in order: the last reader wins
    dying: list[list[Op]] = [[] for _ in ops]
    for op, index in last.items():
        dying[index].append(op)
    found: list[set[Op]] = []
    live: set[Op] = set()
    for index, op in enumerate(ops):
        live = live.difference(dying[index]) | {op}
        found.append(live)
        if last[op] == index:
            live = live - {op}
    return found


def decreasing_intervals(count: int) -> Iterator[range]:
    """``count`` places in intervals that get shorter by one; at the end, one by one.

    Shorter, because at the beginning of the backward pass, which is the end of the forward pass,
    all checkpoints are still there.
    """
    length = int(0.75 * (isqrt(2 * count) - 1))
    start = 0
    while start < count:
        size = length if length > 0 and start + length <= count else 1
        yield range(start, start + size)
        start += size
        length -= 1


def _stages(ops: Sequence[Op]) -> Collection[Op]:
    """All but what the last stage computes: its backward pass follows at once."""
    last = last_stage(ops)
    return [op for op in ops if op.settings.pipeline_stage != last]


METHODS: Final[dict[AutoRecomputation, Method]] = {
    AutoRecomputation.NONE: _none,
    AutoRecomputation.NORM_ONLY: _norms,
    AutoRecomputation.PIPELINE: _stages,
    AutoRecomputation.RECOMPUTE_ALL: _everything,
    AutoRecomputation.STANDARD: _standard,
}
