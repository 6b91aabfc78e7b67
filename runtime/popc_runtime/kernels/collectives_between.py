"""Collectives of replicas in several processes.

Each process is sent the elements that its part of the work is done on, and does it as one process
does it for all: it goes through the members of a group in their order.  So results are the same,
bit for bit, however replicas are divided among processes.

Of a reduction that every member gets, each process makes a part, and sends that to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.groups import Group, GroupExchange, ReplicaShare
from popc_runtime.kernels.collectives import LOCAL, GroupReduction, members
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.bound import guarded, plain_calls, while_binding
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls, is_same_memory
from popc_runtime.process.watch import RunWatch

__all__ = ["Meeting", "crosses", "is_apart", "prepare_between"]

# Elements of the flat operand of a replica: the first, and the one behind the last.
_Part: TypeAlias = "tuple[int, int]"
_Group: TypeAlias = "tuple[int, ...]"
_ALIGNMENT: Final = 16  # bytes, of each part in a message


@frozen
class Meeting:
    """The processes whose replicas meet.

    Attributes:
        share: The replicas of this process.
        watch: Until when a run may go on.
        words: What it is about.
    """

    share: ReplicaShare
    watch: RunWatch
    words: str

    @property
    def group(self) -> Group:
        """The processes."""
        assert self.share.group is not None
        return self.share.group

    def call(self, exchange: GroupExchange) -> Call:
        """The call that makes an exchange."""
        return partial(exchange.run, self.watch)


def is_apart(binding: Binding, share: ReplicaShare) -> bool:
    """True if the replicas of a process are not whole groups, which know of nothing else."""
    return share.count % (binding.integer("stride") * binding.integer("size")) != 0


def crosses(binding: Binding, share: ReplicaShare) -> bool:
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
        self._kind = (_LOCAL_KINDS if bindings[0].attributes.get("op") == LOCAL else _KINDS)[opcode]
        self._crosses = crosses(bindings[0], meeting.share)
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
        exchange = GroupExchange(
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
        if self._crosses:
            yield self._meeting.call(exchange)

    def _wanted(self, rank: int) -> list[tuple[int, _Part]]:
        """The needs of a process: numbers of replicas, and parts of their operands."""
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
        reduction, scratch = GroupReduction.of(self._lead), self._lead.scratch
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

    def own_part(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The part of its own operand that a member gets."""
        yield number, self._scattered(number, group)

    def cut(self) -> Iterator[Call]:
        """Each member gets a part of its own flat operand; zeros follow the last element."""
        for number, binding in self._own.items():
            output = binding.output()
            ((_, part),) = self.own_part(number, self._group_of[number])
            filled = output[: part[1] - part[0]]
            if filled.size < output.size:
                yield partial(output[filled.size :].fill, 0)
            yield from copy_calls(filled, self.part(number, part))

    def own_operand(self, number: int, group: _Group) -> Iterator[tuple[int, _Part]]:
        """The own operand."""
        del group
        yield number, (0, self._elements)

    def keep(self) -> Iterator[Call]:
        """Each member gets its own operand."""
        for number, binding in self._own.items():
            output = binding.output()
            array = self.part(number, (0, self._elements)).reshape(output.shape)
            if not is_same_memory(array, output):
                yield from copy_calls(output, array)

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
        exchange = GroupExchange.alike(
            group,
            self._meeting.words,
            _bytes_of([(0, part) for _, part in lists[rank]], size),
            [_bytes_of([(0, part) for _, part in listed], size) for listed in lists],
        )
        totals = _views(exchange.outgoing(rank), [(0, p) for _, p in lists[rank]], self._dtype)
        reduction, mark = GroupReduction.of(lead), lead.scratch.mark()
        for (members_, part), total in zip(lists[rank], totals, strict=True):
            lead.scratch.rewind(mark)
            parts = [self.part(source, part) for source in members_]
            yield from reduction.calls(parts, total, lead)
        if self._crosses:
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
_LOCAL_KINDS: Final = {
    "ReplicatedAllReduce": _Kind(_Collective.own_operand, _Collective.keep),
    "ReplicatedReduceScatter": _Kind(_Collective.own_part, _Collective.cut),
}
