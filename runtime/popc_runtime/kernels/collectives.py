"""GroupExchange between replicas: each kernel is given the operands of all of them.

Replicas meet in groups of ``size`` whose numbers are ``stride`` apart.  Reductions go through a
group in the order of its members, so that results are always the same, and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import (
    Binding,
    Call,
    Calls,
    CollectiveKernel,
    Kernel,
    MoveKernel,
)
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls, is_same_memory
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16

__all__ = ["KERNELS", "LOCAL", "GroupReduction", "members"]

LOCAL: Final = "local"
_COMBINE: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "max": np.maximum,
    "mean": np.add,
    "min": np.minimum,
    "mul": np.multiply,
    "square_add": np.add,
}
_NARROW: Final = (DType.BFLOAT16, DType.FLOAT16)


def members(replicas: int, stride: int, size: int) -> Iterator[tuple[int, ...]]:
    """The groups of replicas: the numbers of the members of each, ascending.

    Raises:
        ValueError: the replicas cannot be divided into such groups.
    """
    if min(stride, size) < 1 or replicas % (stride * size):
        raise ValueError(f"{replicas} replicas in groups of {size} with stride {stride}")
    for block in range(0, replicas, stride * size):
        for first in range(block, block + stride):
            yield tuple(range(first, first + stride * size, stride))


def _groups(bindings: Sequence[Binding]) -> list[list[Binding]]:
    first = bindings[0]
    groups = members(len(bindings), first.integer("stride"), first.integer("size"))
    return [[bindings[number] for number in group] for group in groups]


def _by_group(function: Callable[[list[Binding]], Iterator[Call]]) -> CollectiveKernel:
    """A kernel from what each group does by itself."""

    def together(bindings: Sequence[Binding]) -> Calls:
        return tuple(call for group in _groups(bindings) for call in function(group))

    return CollectiveKernel(together)


# -- reductions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupReduction:
    """The reduction of several operands to one."""

    op: str
    dtype: DType | None

    @classmethod
    def of(cls, binding: Binding) -> GroupReduction:
        """The reduction that the attributes ask for."""
        return cls(binding.text("op"), binding.input_dtypes[0])

    def calls(self, parts: Sequence[Array], total: Array, lead: Binding) -> Iterator[Call]:
        """Reduce ``parts`` to ``total``, which may be the first of them; narrow floats widened."""
        if self.dtype not in _NARROW:
            spare = lead.scratch.take(total.shape, total.dtype)
            yield from self._reduce(parts, total, spare)
            return
        wide = [lead.scratch.take(total.shape, np.float32) for _ in range(3)]
        narrow = _BRAIN if self.dtype is DType.BFLOAT16 else _HALF
        yield partial(narrow.load, wide[0], parts[0])
        yield from self._first(wide[0], wide[0])
        for part in parts[1:]:
            yield partial(narrow.load, wide[1], part)
            yield from self._next(wide[1], wide[0], wide[2])
        yield from self._last(wide[0], len(parts))
        yield partial(narrow.store, total, wide[0])

    def _reduce(self, parts: Sequence[Array], total: Array, spare: Array) -> Iterator[Call]:
        if len(parts) == 1 or self.op == "square_add":
            yield from self._first(parts[0], total)
        else:
            yield partial(_COMBINE[self.op], parts[0], parts[1], out=total)
        done = 1 if len(parts) == 1 or self.op == "square_add" else 2
        for part in parts[done:]:
            yield from self._next(part, total, spare)
        yield from self._last(total, len(parts))

    def _first(self, part: Array, total: Array) -> Iterator[Call]:
        if self.op == "square_add":
            yield partial(np.multiply, part, part, out=total)
        elif not is_same_memory(part, total):
            yield from copy_calls(total, part)

    def _next(self, part: Array, total: Array, spare: Array) -> Iterator[Call]:
        if self.op == "square_add":
            yield partial(np.multiply, part, part, out=spare)
            part = spare
        yield partial(_COMBINE[self.op], total, part, out=total)

    def _last(self, total: Array, count: int) -> Iterator[Call]:
        if self.op == "mean" and count > 1:
            yield partial(np.divide, total, np.asarray(count, total.dtype), out=total)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """The conversion of a narrow float to float32 and back."""

    load: Callable[[Array, Array], None]
    store: Callable[[Array, Array], None]


def _load_brain(wide: Array, array: Array) -> None:
    np.copyto(wide, from_bfloat16(array))


def _store_brain(array: Array, wide: Array) -> None:
    np.copyto(array, to_bfloat16(wide))


def _store_half(array: Array, wide: Array) -> None:
    np.copyto(array, wide, casting="same_kind")


_BRAIN: Final = _Narrow(_load_brain, _store_brain)
_HALF: Final = _Narrow(np.copyto, _store_half)


def _all_reduce(group: list[Binding]) -> Iterator[Call]:
    """Every member gets the reduction of the operands of all: computed once, then copied."""
    lead = group[0]
    reduction = GroupReduction.of(lead)
    parts = [binding.input(0) for binding in group]
    outputs = [binding.output() for binding in group]
    if reduction.op == LOCAL:
        for part, output in zip(parts, outputs, strict=True):
            yield from _moved(output, part)
        return
    yield from reduction.calls(parts, outputs[0], lead)
    for output in outputs[1:]:
        yield from copy_calls(output, outputs[0])


def _moved(target: Array, source: Array) -> tuple[Call, ...]:
    return () if is_same_memory(target, source) else copy_calls(target, source)


def _reduce_scatter(group: list[Binding]) -> Iterator[Call]:
    """Each member gets its part of the flat reduction; zeros follow the last element."""
    lead = group[0]
    reduction = GroupReduction.of(lead)
    flat: list[Array] = []
    for binding in group:
        packed, calls = as_contiguous(binding, 0)
        yield from calls
        flat.append(packed.reshape(-1))
    mark = lead.scratch.mark()
    for index, binding in enumerate(group):
        lead.scratch.rewind(mark)
        output = binding.output()
        part = slice(index * output.size, min((index + 1) * output.size, flat[0].size))
        filled = output[: max(part.stop - part.start, 0)]
        if filled.size < output.size:
            yield partial(output[filled.size :].fill, 0)
        if filled.size and reduction.op == LOCAL:
            yield from copy_calls(filled, flat[index][part])
        elif filled.size:
            yield from reduction.calls([operand[part] for operand in flat], filled, lead)


# -- moves -----------------------------------------------------------------------------------------


def _all_gather(group: list[Binding]) -> Iterator[Call]:
    """Every member gets the operands of all, one after another."""
    for binding in group:
        output = binding.output()
        for index, other in enumerate(group):
            yield from copy_calls(output[index], other.input(0))


def _all_to_all(group: list[Binding]) -> Iterator[Call]:
    """Member i gets row i of every member's operand."""
    for own, binding in enumerate(group):
        output = binding.output()
        for index, other in enumerate(group):
            yield from copy_calls(output[index], other.input(0)[own])


def _broadcast(group: list[Binding]) -> Iterator[Call]:
    """Every member gets the operand of the one whose place in the group is ``root``."""
    source = group[group[0].integer("root")].input(0)
    for binding in group:
        yield from _moved(binding.output(), source)


def _replica_index(binding: Binding) -> Calls:
    return partial(binding.output().fill, binding.replica)


def _replica_part(binding: Binding) -> Calls:
    """The result of ``_reduce_scatter`` for this replica if all operands are the same."""
    packed, calls = as_contiguous(binding, 0)
    output, size = binding.output(), binding.integer("size")
    index = binding.replica // binding.integer("stride") % size
    part = packed.reshape(-1)[index * output.size : (index + 1) * output.size]
    padding = (partial(output[part.size :].fill, 0),) if part.size < output.size else ()
    return (*calls, *copy_calls(output[: part.size], part), *padding)


def _assume_equal(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0))


KERNELS: Final[dict[str, Kernel]] = {
    "AllToAll": _by_group(_all_to_all),
    "AssumeEqualAcrossReplicas": MoveKernel(_assume_equal),
    "ReplicaIndex": _replica_index,
    "ReplicaPart": MoveKernel(_replica_part),
    "ReplicatedAllGather": _by_group(_all_gather),
    "ReplicatedAllReduce": _by_group(_all_reduce),
    "ReplicatedBroadcast": _by_group(_broadcast),
    "ReplicatedReduceScatter": _by_group(_reduce_scatter),
}
