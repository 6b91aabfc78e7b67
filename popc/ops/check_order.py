"""A naive check of what is required of the order of ops, sharing nothing with what requires it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from popc.ir import Graph, Op, Tensor
from popc.ops import OPS
from popc.ops.load import find_load_ops
from popc.ops.rows import is_row_of_operands

__all__ = ["find_stuck"]


def find_stuck(graph: Graph) -> list[str]:
    """For ``graph`` and each graph nested in it, the ops that wait for each other.

    Runs what has all that it waits for, until nothing is left, or nothing can run.
    """
    problems: list[str] = []
    for nested in graph.walk():
        if nested.ordering.is_empty and not any(op.settings.bins for op in nested.ops):
            continue  # `popc.ir.verifier` looks for cycles of data
        load = set(find_load_ops(graph)) if nested is graph else set[Op]()
        stuck = _run([op for op in nested.ops if op not in load], nested)
        if stuck:
            problems.append(f"{nested.name}: ops wait for each other: {stuck[:12]}")
    return problems


def _run(ops: list[Op], graph: Graph) -> list[Op]:
    """The ops left when nothing can run any more."""
    waits: dict[Op, set[Op]] = {op: set(_awaited(op)) for op in ops}
    for pair in graph.ordering:
        if pair.second in waits:
            waits[pair.second].add(pair.first)
    _wait_for_streams(ops, waits)
    bins = Counter(bin_ for op in ops for bin_ in op.settings.bins)
    left = dict.fromkeys(ops)
    while True:
        before = len(left)
        for op in list(left):
            if left.keys().isdisjoint(waits[op]) and not _is_early(op, bins):
                del left[op]
                bins.subtract(op.settings.bins)
        if len(left) in (0, before):
            return list(left)


def _awaited(op: Op) -> Iterator[Op]:
    for tensor in op.present_inputs:
        if tensor.producer is not None:
            yield tensor.producer
    if op.op_type == "CopyVarUpdate":
        yield from _readers(op.operand(0), op)


def _readers(tensor: Tensor, writer: Op) -> Iterator[Op]:
    """Ops that read ``tensor`` or views of it, but for those that write parts of it."""
    for op in tensor.uses:
        if op.op_type == "CopyVarUpdate" and op.operand(0) is writer.operand(0):
            continue
        yield op
        spec = OPS.get(op.op_type)
        is_view = spec is not None and spec.view is not None
        if is_view or (op.op_type == "Concat" and is_row_of_operands(op)):
            for output in op.outputs:
                yield from _readers(output, writer)


def _wait_for_streams(ops: Collection[Op], waits: dict[Op, set[Op]]) -> None:
    latest: dict[object, Op] = {}
    for op in ops:
        spec = OPS.get(op.op_type)
        stream = op.attributes.get("stream")
        if spec is None or not spec.side_effect or not isinstance(stream, str):
            continue
        key = stream, op.op_type == "HostStore"  # an input and an output may share a name
        if key in latest:
            waits[op].add(latest[key])
        latest[key] = op


def _is_early(op: Op, bins: Counter[tuple[str, int]]) -> bool:
    """True if an op of a lower bin has yet to run."""
    return any(
        count and name == other and number < own
        for name, own in op.settings.bins
        for (other, number), count in bins.items()
    )
