"""The parts of an occurrence, and the costs of calling it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import field
from itertools import accumulate
from math import sqrt
from typing import NamedTuple

from popc.ir import Graph, Op, Tensor
from popc.transforms.outlining.sequence import Program, code_value, digest_of
from popc_runtime.ground.frozen import mutable

__all__ = ["Instance", "best_interval", "equal_constants"]


@mutable
class Instance:
    """Ops of one graph, one behind the other.

    Attributes:
        graph: The graph.
        ops: The ops; views of what they read do not count.
        externals: Roots of operands that the ops do not compute, in order of first use.
        wiring: Equal for occurrences that are wired alike.
    """

    graph: Graph
    ops: Sequence[Op]
    externals: dict[Tensor, int] = field(default_factory=dict[Tensor, int])
    wiring: Hashable = None

    @classmethod
    def of(cls, program: Program, graph: Graph, ops: Sequence[Op]) -> Instance:
        """Look at ``ops`` of ``graph``."""
        found = cls(graph, ops)
        made: dict[Tensor, int] = {}
        wires: list[int] = []
        for op in ops:
            for tensor in op.present_inputs:
                root = program.root(tensor)[0]
                if root in made:
                    wires.append(made[root])
                else:
                    number = found.externals.setdefault(root, len(found.externals))
                    wires.append(-1 - number)
            for tensor in op.outputs:
                made[tensor] = len(made)
        found.wiring = tuple(wires)
        return found

    def results(self, program: Program) -> list[bool]:
        """True for each output of each op that anything else reads, if only through views."""
        own = set(self.ops)
        outputs = set(self.graph.outputs)
        return [
            _is_needed(program, tensor, own, outputs) for op in self.ops for tensor in op.outputs
        ]


def _is_needed(program: Program, tensor: Tensor, own: set[Op], outputs: set[Tensor]) -> bool:
    if tensor in outputs:
        return True
    for op in tensor.uses:
        is_view = op in program.views
        if is_view and any(_is_needed(program, output, own, outputs) for output in op.outputs):
            return True
        if not is_view and op not in own:
            return True
    return False


def equal_constants(instances: Sequence[Instance]) -> set[int]:
    """The numbers of the externals that are the same constant everywhere."""
    columns = zip(*(instance.externals for instance in instances), strict=True)
    return {number for number, tensors in enumerate(columns) if _are_equal(tensors)}


def _are_equal(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0].data
    if first is None or any(tensor.data is None for tensor in tensors):
        return False
    if all(tensor.data is first for tensor in tensors):
        return True
    digest = digest_of(tensors[0])
    return all(tensor.data is first or digest_of(tensor) == digest for tensor in tensors[1:])


def best_interval(
    program: Program, instance: Instance, needed: Sequence[bool], free: set[int]
) -> tuple[float, int, int]:
    """The ops of ``instance`` that it pays best to call: their worth, the first, the last but one.

    PopART's measure: the value of each op times the root of the bytes that it reads, less the roots
    of the bytes of all that is copied.

    Args:
        program: What is outlined.
        instance: One of the occurrences; the others have the same types.
        needed: See `Instance.results`.
        free: Externals that need no copy.
    """
    costs = _CopyCosts(program, instance, needed, free)
    starts = costs.by_start()
    start = max(range(len(starts)), key=lambda number: (starts[number], -number))
    ends = costs.by_end(start)
    end = max(range(start + 1, len(ends)), key=lambda number: (ends[number], number))
    return ends[end], start, end


class _Copied(NamedTuple):
    """A tensor that may be an operand or a result.

    Attributes:
        maker: The number of the op that makes it; -1: none here.
        readers: Those that read it.
        last: The last of these, or one beyond the end, if others read it.
        cost: What a copy costs.
    """

    maker: int
    readers: list[int]
    last: int
    cost: float


class _CopyCosts:
    """The worth of intervals of an instance; those of one end together."""

    def __init__(
        self, program: Program, instance: Instance, needed: Sequence[bool], free: set[int]
    ) -> None:
        ops = instance.ops
        self._gains = [_gain(op) for op in ops]
        makers = {tensor: number for number, op in enumerate(ops) for tensor in op.outputs}
        wanted = dict(zip(makers, needed, strict=True))
        readers: dict[Tensor, list[int]] = {tensor: [] for tensor in makers}
        for number, op in enumerate(ops):
            for root in dict.fromkeys(program.root(tensor)[0] for tensor in op.present_inputs):
                readers.setdefault(root, []).append(number)
        self._tensors = [
            _Copied(
                makers.get(tensor, -1),
                read,
                len(ops) if wanted.get(tensor) else max(read, default=-1),
                sqrt(tensor.type.nbytes),
            )
            for tensor, read in readers.items()
            if instance.externals.get(tensor) not in free
        ]

    def by_start(self) -> list[float]:
        """The worth of the ops from each number on, up to the last."""
        count = len(self._gains)
        changes = [0.0] * (count + 1)
        for maker, readers, last, cost in self._tensors:
            # A result if it is made here and needed elsewhere, else an operand if it is read.
            first = 0 if last == count else maker + 1
            beyond = max(maker, readers[-1] if readers else -1) + 1
            if first < beyond:
                changes[first] += cost
                changes[beyond] -= cost
        copies = list(accumulate(changes))
        gains = list(accumulate(reversed(self._gains)))[::-1]
        return [gain - copied for gain, copied in zip(gains, copies, strict=False)]

    def by_end(self, start: int) -> list[float]:
        """The worth of the ops from ``start`` up to, but without, each number."""
        count = len(self._gains)
        changes = [0.0] * (count + 2)
        for maker, readers, last, cost in self._tensors:
            if maker >= start:
                first, beyond = maker + 1, last + 1
            else:
                inside = readers[bisect_left(readers, start) :]
                first, beyond = (inside[0] + 1, count + 1) if inside else (0, 0)
            if first < beyond:
                changes[first] += cost
                changes[beyond] -= cost
        copies = list(accumulate(changes))
        gains = [0.0] * start + list(accumulate(self._gains[start:], initial=0.0))
        return [gain - copied for gain, copied in zip(gains, copies, strict=False)]


def _gain(op: Op) -> float:
    return code_value(op) * sqrt(sum(tensor.type.nbytes for tensor in op.present_inputs))
