"""Look naively for what is wrong with a graph whose batch has been cut.

This shares no code with what cuts: it only knows what the ops that were added say of themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers

__all__ = ["find_disorder", "find_mixed_parts"]

_MIXERS = ("batchSum", "batchUpdate")


def find_mixed_parts(graph: Graph, parts: int) -> list[str]:
    """Ops of a part that read another part, and slices that are not what a part should read."""
    problems: list[str] = []
    slices: dict[tuple[Tensor, int], list[tuple[int, int]]] = defaultdict(list)
    for op in graph.ops:
        phase, origin = op.settings.batch_phase, op.settings.origin
        if origin == "batchLoop":
            problems += _wrong_slices(op, parts)
        if phase is None:
            continue
        if origin not in _MIXERS:
            problems += [
                f"{op!r} of part {phase} reads {tensor!r}" for tensor in _others(op, phase)
            ]
        if origin == "batchSlice":
            axis, start, size = _window(op)
            slices[op.operand(0), axis].append((start, size))
            if start != phase * size:
                problems.append(f"{op!r} of part {phase} begins at {start}, not {phase * size}")
    for (tensor, axis), windows in slices.items():
        covered = sum(size for _, size in set(windows))
        if covered != tensor.type.shape[axis]:
            problems.append(f"slices of {tensor!r} cover {covered} of axis {axis}")
    return problems


def find_disorder(order: Sequence[Op], partition: str) -> list[str]:
    """Ops of a part that run before ops of an earlier one."""
    problems: list[str] = []
    latest: tuple[int, Op] | None = None
    for op in order:
        number = dict(op.settings.bins).get(partition)
        if number is None:
            continue
        if latest is not None and number < latest[0]:
            problems.append(f"{op!r} runs behind {latest[1]!r}, which is of a later part")
        latest = (number, op)
    return problems


def _others(op: Op, phase: int) -> Iterator[Op]:
    for tensor in op.present_inputs:
        producer = tensor.producer
        if producer is not None and producer.settings.batch_phase not in (None, phase):
            yield producer


def _window(op: Op) -> tuple[int, int, int]:
    """The axis that a slice cuts, where it begins, and its size."""
    whole, part = op.operand(0).type.shape, op.output.type.shape
    axis = next((axis for axis, dim in enumerate(whole) if part[axis] != dim), 0)
    if op.op_type == "DynamicSlice":
        data = op.operand(1).data
        return axis, -1 if data is None else int(data[0]), part[axis]
    return axis, integers(op.attributes, "starts")[axis], part[axis]


def _wrong_slices(loop: Op, parts: int) -> Iterator[str]:
    """Slices in a loop whose iterations do not read all of their operand, in order."""
    for op in loop.subgraphs["body"].ops:
        if op.settings.origin != "batchSlice" or op.op_type != "DynamicSlice":
            continue
        axis, _, size = _window(op)
        step = _step(op.operand(1), loop)
        if (step, parts * size) != (size, op.operand(0).type.shape[axis]):
            yield f"{op!r} advances by {step}, and reads {size} at a time"


def _step(offset: Tensor, loop: Op) -> int:
    """The growth of an offset in an iteration: it is the number of the iteration times that."""
    reshape = offset.producer
    product = None if reshape is None else reshape.operand(0).producer
    if product is None or product.operand(0) is not loop.subgraphs["body"].inputs[0]:
        return -1
    factor = product.operand(1).data
    return -1 if factor is None else int(factor)
