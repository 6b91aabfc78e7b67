"""Collectives of replicas in several processes.

Each process is sent the elements that its part of the work is done on, and does it as one process
does it for all: it goes through the members of a group in their order.  So results are the same,
bit for bit, however replicas are divided among processes.

Of a reduction that every member gets, each process makes a part, and sends that to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.groups import Exchange, Group, Share
from popc_runtime.kernels.collectives import LOCAL, Reduction, members
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.bound import guarded, plain_calls, while_binding
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls
from popc_runtime.kernels.core.preparation import floats_of
from popc_runtime.process.watch import RunWatch

__all__ = ["Meeting", "crosses", "flags_between", "numbers_between", "prepare_between"]

# Elements of the flat operand of a replica: the first, and the one behind the last.
_Part: TypeAlias = "tuple[int, int]"
_Group: TypeAlias = "tuple[int, ...]"
_ALIGNMENT: Final = 16  # bytes, of each part in a message


@frozen
class Meeting:
    """The processes whose replicas meet.

    Attributes:
        share: The replicas of this process.
        group: The processes.
        watch: Until when a run may go on.
        words: What it is about.
    """

    share: Share
    group: Group
    watch: RunWatch
    words: str

    def call(self, exchange: Exchange) -> Call:
        """The call that makes an exchange."""
        return partial(exchange.run, self.watch)


def crosses(binding: Binding, share: Share) -> bool:
    """True if replicas of several processes meet in an instruction."""
    if binding.attributes.get("op") == LOCAL:
        return False
    return any(
        share.rank_of(group[0]) != share.rank_of(group[-1])
        for group in members(share.total, binding.integer("stride"), binding.integer("size"))
    )


def prepare_between(opcode: str, bindings: Sequence[Binding], meeting: Meeting) -> tuple[Call, ...]:
    """The calls of a collective on the operands of the replicas of this process."""
    with while_binding():
        collective = _Collective(opcode, [guarded(binding) for binding in bindings], meeting)
        return plain_calls(tuple(collective.calls()))


class _Collective:
    """One instruction, as this process takes part in it."""

    def __init__(self, opcode: str, bindings: Sequence[Binding], meeting: Meeting) -> None:
        self._kind = _KINDS[opcode]
        self._own = dict(zip(meeting.share.own, bindings, strict=True))
        self._lead = lead = bindings[0]
        self._meeting, self._share = meeting, meeting.share
        self._groups = list(
            members(self._share.total, lead.integer("stride"), lead.integer("size"))
        )
        self._group_of = {number: group for group in self._groups for number in group}
        self._elements = lead.input(0).size
        self._dtype = lead.input(0).dtype
        self._parts: dict[tuple[int, _Part], Array] = {}

    def calls(self) -> Iterator[Call]:
        """All calls, in their order."""
        flat: dict[int, Array] = {}
        for number, binding in self._own.items():
            packed, calls = as_contiguous(binding, 0)
            yield from calls
            flat[number] = packed.reshape(-1)
        yield from self._gathered(flat)
        yield from self._kind.results(self)

    def _gathered(self, flat: dict[int, Array]) -> Iterator[Call]:
        """Let `part` have what this process needs of the operands of all replicas."""
        ranks = range(self._meeting.group.size)
        wanted = [self._wanted(rank) for rank in ranks]
        own = self._meeting.group.rank
        taken = [[each for each in wanted[own] if self._share.rank_of(each[0]) == r] for r in ranks]
        given = [[each for each in listed if each[0] in flat] for listed in wanted]
        size = self._dtype.itemsize
        exchange = Exchange(
            self._meeting.group,
            self._meeting.words,
            [_bytes_of(listed, size) for listed in given],
            [_bytes_of(listed, size) for listed in taken],
        )
        for rank in ranks:
            if rank == own:
                for number, part in given[own]:
                    self._parts[number, part] = flat[number][slice(*part)]
                continue
            views = _views(exchange.outgoing(rank), given[rank], self._dtype)
            for (number, part), view in zip(given[rank], views, strict=True):
                yield from copy_calls(view, flat[number][slice(*part)])
            views = _views(exchange.incoming(rank), taken[rank], self._dtype)
            for (number, part), view in zip(taken[rank], views, strict=True):
                self._parts[number, part] = view
        yield self._meeting.call(exchange)

    def _wanted(self, rank: int) -> list[tuple[int, _Part]]:
        """What a process needs: numbers of replicas, and parts of their operands."""
        found: dict[tuple[int, _Part], None] = {}
        first = rank * self._share.count
        for number in range(first, first + self._share.count):
            group = self._group_of[number]
            for source, part in self._kind.needs(self, number, group):
                if part[0] < part[1]:
                    found[source, part] = None
        return list(found)

    def part(self, number: int, part: _Part) -> Array:
        """Elements of the operand of a replica."""
        if part[0] >= part[1]:
            return np.empty(0, self._dtype)
        return self._parts[number, part]

    # -- what each kind of collective needs, and makes of it --------------------------------------

    def whole(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The operands of all members."""
        del number
        for source in group:
            yield source, (0, self._elements)

    def gather(self) -> Iterator[Call]:
        """Every member gets the operands of all, one after another."""
        for number, binding in self._own.items():
            output = binding.output()
            for index, other in enumerate(self._group_of[number]):
                array = self.part(other, (0, self._elements))
                yield from copy_calls(output[index], array.reshape(output[index].shape))

    def row(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """A row of the operand of each member."""
        index, size = group.index(number), self._elements // len(group)
        for source in group:
            yield source, (index * size, (index + 1) * size)

    def transpose(self) -> Iterator[Call]:
        """Member i gets row i of every member's operand."""
        for number, binding in self._own.items():
            group, output = self._group_of[number], binding.output()
            for index, (source, part) in enumerate(self.row(number, group)):
                array = self.part(source, part)
                yield from copy_calls(output[index], array.reshape(output[index].shape))

    def root(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The operand of one member."""
        del number
        yield group[self._lead.integer("root")], (0, self._elements)

    def broadcast(self) -> Iterator[Call]:
        """Every member gets the operand of the root."""
        for number, binding in self._own.items():
            output = binding.output()
            ((source, part),) = self.root(number, self._group_of[number])
            yield from copy_calls(output, self.part(source, part).reshape(output.shape))

    def _scattered(self, number: int, group: _Group) -> _Part:
        size = self._lead.output().size
        index = group.index(number)
        return min(index * size, self._elements), min((index + 1) * size, self._elements)

    def scattered(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The part of the reduction that a member gets, of each operand."""
        for source in group:
            yield source, self._scattered(number, group)

    def scatter(self) -> Iterator[Call]:
        """Each member gets its part of the flat reduction; zeros follow the last element."""
        reduction, scratch = Reduction.of(self._lead), self._lead.scratch
        mark = scratch.mark()
        for number, binding in self._own.items():
            scratch.rewind(mark)
            group, output = self._group_of[number], binding.output()
            part = self._scattered(number, group)
            filled = output[: part[1] - part[0]]
            if filled.size < output.size:
                yield partial(output[filled.size :].fill, 0)
            if filled.size:
                parts = [self.part(source, part) for source in group]
                yield from reduction.calls(parts, filled, self._lead)

    def _divided(self, rank: int, group: _Group) -> _Part:
        """The elements that a process reduces for all members of a group."""
        ranks = sorted({self._share.rank_of(number) for number in group})
        if rank not in ranks:
            return 0, 0
        place, count = ranks.index(rank), len(ranks)
        return place * self._elements // count, (place + 1) * self._elements // count

    def divided(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The elements of all operands that the process of a replica reduces."""
        for source in group:
            yield source, self._divided(self._share.rank_of(number), group)

    def reduce(self) -> Iterator[Call]:
        """Every member gets the reduction of the operands of all."""
        group, rank = self._meeting.group, self._meeting.group.rank
        lead, size = self._lead, self._dtype.itemsize
        lists = [self._reduced_by(other) for other in range(group.size)]
        exchange = Exchange.alike(
            group,
            self._meeting.words,
            _bytes_of([(0, part) for _, part in lists[rank]], size),
            [_bytes_of([(0, part) for _, part in listed], size) for listed in lists],
        )
        totals = _views(exchange.outgoing(rank), [(0, p) for _, p in lists[rank]], self._dtype)
        reduction, mark = Reduction.of(lead), lead.scratch.mark()
        for (members_, part), total in zip(lists[rank], totals, strict=True):
            lead.scratch.rewind(mark)
            parts = [self.part(source, part) for source in members_]
            yield from reduction.calls(parts, total, lead)
        yield self._meeting.call(exchange)
        for other, listed in enumerate(lists):
            memory = exchange.outgoing(rank) if other == rank else exchange.incoming(other)
            views = _views(memory, [(0, part) for _, part in listed], self._dtype)
            for (members_, part), view in zip(listed, views, strict=True):
                yield from self._spread(members_, part, view)

    def _reduced_by(self, rank: int) -> list[tuple[_Group, _Part]]:
        """The groups that a process has replicas in, and what it reduces of each."""
        parts = [(group, self._divided(rank, group)) for group in self._groups]
        return [(group, part) for group, part in parts if part[0] < part[1]]

    def _spread(self, group: _Group, part: _Part, total: Array) -> Iterator[Call]:
        for number in group:
            if number not in self._own:
                continue
            output = self._own[number].output()
            if output.flags.c_contiguous:
                yield from copy_calls(output.reshape(-1)[slice(*part)], total)
            else:  # numpy walks over whatever order its elements have in memory
                yield partial(_assign, output, part, total)


def _assign(output: Array, part: _Part, total: Array) -> None:
    output.flat[slice(*part)] = total


def _bytes_of(parts: Sequence[tuple[int, _Part]], size: int) -> int:
    return sum(_padded((last - first) * size) for _, (first, last) in parts)


def _padded(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def _views(
    memory: memoryview, parts: Sequence[tuple[int, _Part]], dtype: np.dtype[np.generic]
) -> list[Array]:
    """The arrays of parts that lie one after another in a message."""
    whole, views, start = np.frombuffer(memory, np.uint8), [], 0
    for _, (first, last) in parts:
        count = (last - first) * dtype.itemsize
        views.append(whole[start : start + count].view(dtype))
        start += _padded(count)
    return views


@frozen
class _Kind:
    """A kind of collective.

    Attributes:
        needs: What the process of a replica needs to make its results.
        results: The calls that make them.
    """

    needs: Callable[[_Collective, int, _Group], Iterator[tuple[int, _Part]]]
    results: Callable[[_Collective], Iterator[Call]]


_KINDS: Final = {
    "AllToAll": _Kind(_Collective.row, _Collective.transpose),
    "ReplicatedAllGather": _Kind(_Collective.whole, _Collective.gather),
    "ReplicatedAllReduce": _Kind(_Collective.divided, _Collective.reduce),
    "ReplicatedBroadcast": _Kind(_Collective.root, _Collective.broadcast),
    "ReplicatedReduceScatter": _Kind(_Collective.scattered, _Collective.scatter),
}


def flags_between(
    bindings: Sequence[Binding], meeting: Meeting
) -> tuple[Array, tuple[Call, ...]]:
    """Numbers that are as little finite as the operands in other processes, and what sets them.

    They are zeros, infinite for a process with an operand that is, and NaN for one with a NaN.
    """
    size = meeting.group.size
    exchange = Exchange.alike(meeting.group, f"checks of {meeting.words}", 4, [4] * size)
    flags = np.zeros(size, np.float32)
    operands = [
        (binding.input(0), binding.input_dtypes[0])
        for binding in bindings
        if binding.input_dtypes[0] is not None and binding.input_dtypes[0].is_float
    ]

    def send() -> None:
        values = [_least_finite(floats_of(array, dtype)) for array, dtype in operands if dtype]
        own = next((v for v in values if np.isnan(v)), max(values, default=0.0))
        exchange.outgoing(meeting.group.rank)[:] = np.float32(own).tobytes()

    def read() -> None:
        for rank in range(size):
            if rank != meeting.group.rank:
                flags[rank] = np.frombuffer(exchange.incoming(rank), np.float32)[0]

    return flags, (send, meeting.call(exchange), read)


def _least_finite(array: Array) -> float:
    if np.isfinite(array).all():
        return 0.0
    return float("nan") if np.isnan(array).any() else float("inf")


def numbers_between(
    group: Group, share: Share, words: str, watch: RunWatch
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from the whole numbers of the own replicas to those of all."""
    nbytes = 8 * share.count
    exchange = Exchange.alike(group, words, nbytes, [nbytes] * group.size)

    def everywhere(values: Sequence[Any]) -> list[Any]:
        exchange.outgoing(group.rank)[:] = np.asarray(values, np.int64).tobytes()
        exchange.run(watch)
        found: list[Any] = []
        for rank in range(group.size):
            if rank == group.rank:
                found += values
            else:
                row = np.frombuffer(exchange.incoming(rank), np.int64)
                found += [type(values[0])(value) for value in row]
        return found

    return everywhere
