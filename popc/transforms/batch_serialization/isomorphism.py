"""The matching ops of two parts of a batch, and an order that follows that of another part."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from popc.ir import Op, Tensor
from popc.ops.constraints import Barrier, Node

__all__ = ["Likeness", "follow"]

# Attributes by which the ops of parts differ: where a part begins.
_PLACES: Final = {"Slice": ("starts",)}
_SMALL: Final = 64  # bytes of a constant that may be an index


class Likeness:
    """Tells what an op of a part computes, in words that are the same for all parts."""

    def __init__(self, order: Sequence[Op]) -> None:
        self._words: dict[Op, str] = {}
        for op in order:
            if op.settings.batch_phase is not None:
                self._words[op] = self._described(op)

    def keys(self, ops: Sequence[Op]) -> dict[Op, Hashable]:
        """Ops of different parts with equal keys correspond."""
        seen: Counter[str] = Counter()
        found: dict[Op, Hashable] = {}
        for op in ops:
            word = self._words[op]
            found[op] = (word, seen[word])
            seen[word] += 1
        return found

    def _described(self, op: Op) -> str:
        places = _PLACES.get(op.op_type, ())
        attributes = sorted((k, repr(v)) for k, v in op.attributes.items() if k not in places)
        operands = [None if input_ is None else self._operand(op, input_) for input_ in op.inputs]
        text = repr((op.op_type, op.settings.origin, attributes, operands))
        return blake2b(text.encode(), digest_size=12).hexdigest()

    def _operand(self, op: Op, tensor: Tensor) -> tuple[str, ...]:
        producer = tensor.producer
        if producer is None:
            is_index = tensor.is_constant and tensor.type.nbytes <= _SMALL
            return ("number", str(tensor.type)) if is_index else ("whole", tensor.name)
        if producer.settings.batch_phase is None:
            return ("whole", tensor.name)
        if producer.settings.batch_phase != op.settings.batch_phase:
            return ("other part", str(tensor.type))
        if producer not in self._words:
            return ("part from load time", str(tensor.type))
        return (self._words[producer], str(producer.outputs.index(tensor)))


def follow(
    ops: Sequence[Op],
    before: Mapping[Node, Sequence[Node]],
    places: Mapping[Op, int | None],
    ranks: Mapping[Op, int],
) -> list[Op]:
    """``ops`` in an order that ``before`` allows, by lowest rank and then by place.

    An op without a place stands behind what it waits for.
    """
    inside = frozenset(ops)
    needs = {
        op: [
            earlier
            for earlier in before[op]
            if not isinstance(earlier, Barrier) and earlier in inside
        ]
        for op in ops
    }
    after: dict[Op, list[Op]] = {op: [] for op in ops}
    for op, others in needs.items():
        for other in others:
            after[other].append(op)
    waiting = {op: len(others) for op, others in needs.items()}
    numbers = {op: number for number, op in enumerate(ops)}
    found: dict[Op, int] = {}
    ready: list[tuple[int, int, int, Op]] = []

    def push(op: Op) -> None:
        own = places[op]
        found[op] = max((found[needed] for needed in needs[op]), default=-1) if own is None else own
        heapq.heappush(ready, (ranks[op], found[op], numbers[op], op))

    for op in [free for free in ops if not waiting[free]]:
        push(op)
    order: list[Op] = []
    while ready:
        order.append(heapq.heappop(ready)[3])
        for other in after[order[-1]]:
            waiting[other] -= 1
            if not waiting[other]:
                push(other)
    return order
