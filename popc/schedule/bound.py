"""A peak that no order goes below.

While a node runs, everything is live that it or a node before it makes and that it or a node after
it needs, whatever the order.  While the last one runs, all is live that stays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from popc.schedule.flat import find_native, flattened, lists_of
from popc.schedule.problem import OrderingProblem

__all__ = [
    "bound_columns",
    "bound_peak",
    "certain_by_definition",
    "certain_bytes",
    "certain_steps",
]

_Bytes = np.ndarray[tuple[int], np.dtype[np.int64]]

# Buffers and nodes that are looked at together, so that memory stays linear.
_BITS: Final = 4096
_ROWS: Final = 512
# The most pairs of a node and a buffer that are looked at, so that time does too.
_PAIRS: Final = 400_000_000


def bound_peak(problem: OrderingProblem) -> int:
    """Bytes that every order needs at least; of very many buffers the largest are counted."""
    return problem.remembered("bound", _bound_peak)


def _bound_peak(problem: OrderingProblem) -> int:
    most = int(certain_steps(problem).max(initial=0))
    return max(problem.floor, most, _bound_end(problem))


def certain_steps(problem: OrderingProblem) -> _Bytes:
    """For each node the bytes that are live in its step in any order."""
    return problem.remembered("steps", _certain_steps)


def _certain_steps(problem: OrderingProblem) -> _Bytes:
    order = problem.topological()
    taken = [sum([take.nbytes for take in takes]) if takes else 0 for takes in problem.takes]
    least = np.array(problem.rise, np.int64) - np.array(taken, np.int64) + problem.base
    made = [*problem.initial, *chain.from_iterable(problem.makes[node] for node in order)]
    count = max(_PAIRS // max(len(order), 1), _BITS)
    if len(made) > count:
        largest = sorted(made, key=lambda buffer: (-problem.weights[buffer], buffer))[:count]
        made = list(filter(set(largest).__contains__, made))
    return least + certain_bytes(problem, order, made)


def _bound_end(problem: OrderingProblem) -> int:
    """The bytes live in the last step at least: all that stays is there by then.

    Any node may be the last that no other waits for.
    """
    weights, stays, leaders = problem.weights, problem.stays, problem.freed_with
    made = (*problem.initial, *chain.from_iterable(problem.makes))
    staying = problem.base + sum([weights[buffer] for buffer in made if stays[leaders[buffer]]])
    members, successors = problem.members, problem.successors
    last = [node for node, others in enumerate(successors) if members[node] and not others]
    if () in members:  # barriers, which take no time
        last = [
            node
            for node, others in enumerate(successors)
            if members[node] and not any(members[other] for other in others)
        ]
    ends = {leader for node in last for leader in problem.reads[node] if not stays[leader]}
    parts: dict[int, list[int]] = {leader: [] for leader in ends}
    for buffer in made:
        if leaders[buffer] in parts:
            parts[leaders[buffer]].append(buffer)
    lowest: int | None = None
    for node in last:
        own = problem.makes[node]
        step = staying + problem.rise[node]
        step -= sum(weights[buffer] for buffer in own if stays[leaders[buffer]])
        dying = (leader for leader in problem.reads[node] if not stays[leader])
        read = chain.from_iterable(parts[leader] for leader in dying)
        step += sum(weights[buffer] for buffer in read if buffer not in own)
        step -= sum(take.nbytes for take in problem.takes[node])
        lowest = step if lowest is None else min(lowest, step)
    return lowest or 0


def certain_bytes(problem: OrderingProblem, order: Sequence[int], buffers: Sequence[int]) -> _Bytes:
    """For each node the bytes of ``buffers`` that are live while it runs in any order.

    It is fastest if ``buffers`` that stand together are made near each other in ``order``, which
    holds all nodes.
    """
    native = find_native()
    tables = flattened(problem, order) if native is not None else None
    if native is None or tables is None:
        return certain_by_definition(problem, order, buffers)
    live = np.zeros(len(problem), np.int64)
    native.add_certain_bytes(*tables, *bound_columns(problem, buffers), live)
    return live


def bound_columns(problem: OrderingProblem, buffers: Sequence[int]) -> tuple[array[int], ...]:
    """Arrays for the module in C, beside the tables of the problem.

    Where the lists of buffers that nodes make begin, and all of these; of each buffer its weight
    and the one that it is freed with; the buffers that are looked at; those there from the start.
    """
    beside = (problem.weights, problem.freed_with, buffers, problem.initial)
    return (*lists_of(problem.makes), *(array("q", numbers) for numbers in beside))


def certain_by_definition(
    problem: OrderingProblem, order: Sequence[int], buffers: Sequence[int]
) -> _Bytes:
    """The definition of `certain_bytes`, in Python."""
    live = np.zeros(len(problem), np.int64)
    for low in range(0, len(buffers), _BITS):
        live += _certain_bytes(problem, order, buffers[low : low + _BITS])
    return live


def _certain_bytes(
    problem: OrderingProblem, order: Sequence[int], buffers: Sequence[int]
) -> _Bytes:
    marks = {buffer: 1 << index for index, buffer in enumerate(buffers)}
    freed: dict[int, int] = {}  # bits of what is freed with a buffer
    for buffer, bit in marks.items():
        leader = problem.freed_with[buffer]
        freed[leader] = freed.get(leader, 0) | bit

    def union(chosen: Iterable[int], table: dict[int, int]) -> int:
        found = 0
        for buffer in chosen:
            found |= table.get(buffer, 0)
        return found

    made = [union(problem.initial, marks)] * len(order)
    for node in order:
        passed = made[node] | union(problem.makes[node], marks)
        for later in problem.successors[node]:
            made[later] |= passed
    needed = [union((b for b in freed if problem.stays[b]), freed)] * len(order)
    for node in reversed(order):
        for later in problem.successors[node]:
            needed[node] |= needed[later]
        needed[node] |= union(problem.reads[node], freed)
    width = -(-len(buffers) // 8)
    rows = b"".join((a & b).to_bytes(width, "little") for a, b in zip(made, needed, strict=True))
    table = np.frombuffer(rows, np.uint8).reshape(len(order), width)
    weights = np.zeros(8 * width, np.int64)
    weights[: len(buffers)] = [problem.weights[buffer] for buffer in buffers]
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    bytes_of = weights.reshape(width, 8) @ bits.T.astype(np.int64)  # of each value of each byte
    places = np.arange(width)
    live = np.empty(len(order), np.int64)
    for start in range(0, len(order), _ROWS):
        part = slice(start, start + _ROWS)
        live[part] = bytes_of[places, table[part]].sum(axis=1)
    return live
