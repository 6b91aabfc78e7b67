"""Put ops that do the same on different data together: which of them may wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build

__all__ = ["combine", "concatenated", "depths", "groups_of", "likeness", "split_among"]


def groups_of(keyed: Iterable[tuple[Hashable, Op]]) -> Iterator[list[Op]]:
    """The ops that have a key in common with others, in order."""
    by_key: dict[Hashable, list[Op]] = defaultdict(list)
    for key, op in keyed:
        by_key[key].append(op)
    return (ops for ops in by_key.values() if len(ops) > 1)


def combine(
    graph: Graph, keyed: Iterable[tuple[Hashable, Op]], merge: Callable[[Graph, list[Op]], None]
) -> int:
    """``merge`` those of each group that do not wait for each other; how many ops are gone."""
    count = 0
    for group in groups_of(keyed):
        ops = _independent(group)
        if len(ops) > 1:
            merge(graph, ops)
            count += len(ops) - 1
    return count


def _independent(ops: Iterable[Op]) -> list[Op]:
    """The first of ``ops``, and each further one that neither needs those chosen nor they it."""
    chosen: list[Op] = []
    behind: set[Op] = set()
    for op in ops:
        if op in behind:
            continue
        later = _behind(op)
        if later.isdisjoint(chosen):
            chosen.append(op)
            behind |= later
    return chosen


def _behind(op: Op) -> set[Op]:
    """All ops that need a result of ``op``, directly or not."""
    found: set[Op] = set()
    pending = [op]
    while pending:
        for tensor in pending.pop().outputs:
            for user in tensor.uses:
                if user not in found:
                    found.add(user)
                    pending.append(user)
    return found


def depths(graph: Graph) -> dict[Op, int]:
    """The number of ops on the longest way to each op; equal ones do not need each other."""
    found: dict[Op, int] = {}
    for op in graph.topological():
        before = (found[t.producer] for t in op.present_inputs if t.producer is not None)
        found[op] = 1 + max(before, default=-1)
    return found


def likeness(op: Op) -> Hashable:
    """The key that ops must share to be one: their arithmetic, where they run and when."""
    attributes = tuple((key, repr(value)) for key, value in sorted(op.attributes.items()))
    settings = op.settings
    return op.op_type, attributes, settings.place, settings.part, settings.recompute


def split_among(graph: Graph, ops: Sequence[Op], operands: Sequence[Tensor], axis: int) -> None:
    """One op on ``operands``, its result in parts that take the place of the results of ``ops``."""
    first = ops[0]
    whole = build(
        graph, first.op_type, operands, dict(first.attributes), settings=first.settings
    ).output
    shapes = [op.output.type.shape for op in ops]
    alone = whole.type.rank > len(shapes[0])
    split = tuple(1 if alone else shape[axis] for shape in shapes)
    attributes: AttributeMap = {"axis": axis, "split": split}
    parts = build(graph, "Split", [whole], attributes, settings=first.settings).outputs
    for op, part in zip(ops, parts, strict=True):
        result = part
        if alone:
            result = build(
                graph, "Reshape", [part], {"shape": op.output.type.shape}, settings=op.settings
            ).output
        graph.replace_op(op, [result])


def concatenated(graph: Graph, like: Op, operands: Sequence[Tensor], *, axis: int) -> Tensor:
    """``operands`` in one, computed where ``like`` is."""
    return build(graph, "Concat", operands, {"axis": axis}, settings=like.settings).output
