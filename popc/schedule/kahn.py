"""Kahn's algorithm: repeatedly take one of the ops that are ready; a tie-breaker says which.

Among ready ops those of the highest `OpSettings.schedule_priority` go first; the tie-breaker
chooses among equals.  Each tie-breaker is a container of ready ops whose `pop` makes the choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final, Protocol

from popc.ir import Op, Tensor
from popc.schedule.constraints import Precedence
from popc.schedule.liveness import Residents

__all__ = ["ReadyOps", "TieBreaker", "kahn_order"]

_SEED: Final = 1


class TieBreaker(StrEnum):
    """Which of several ready ops runs first."""

    GREEDY = "greedy"  # the one that adds the fewest live bytes; among equals as FIFO
    FIFO = "fifo"  # the one that became ready last (the established name is a misnomer)
    RANDOM = "random"  # any, the same on every run


class ReadyOps(Protocol):
    """The ready ops.  What `pop` returns counts as executed from then on."""

    def push(self, op: Op) -> None:
        """Add an op that has become ready."""

    def pop(self) -> Op:
        """Remove and return the op to run next.

        Raises:
            IndexError: nothing is ready.
        """


def kahn_order(
    precedence: Precedence, residents: Residents, tie_breaker: TieBreaker
) -> tuple[Op, ...]:
    """The ops of ``precedence`` in an order that it allows.

    Raises:
        ValueError: the constraints have a cycle; the message names its ops.
    """
    waiting = dict(precedence.waiting)
    ready = _READY_OPS[tie_breaker](residents)
    for op, count in waiting.items():
        if count == 0:
            ready.push(op)
    order: list[Op] = []
    while True:
        try:
            op = ready.pop()
        except IndexError:
            break
        order.append(op)
        for successor in precedence.successors[op]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.push(successor)
    if len(order) != len(waiting):
        cycle = _find_cycle(precedence, waiting)
        raise ValueError(f"ops wait for each other: {' -> '.join(map(repr, cycle))}")
    return tuple(order)


def _find_cycle(precedence: Precedence, waiting: Mapping[Op, int]) -> list[Op]:
    """A closed walk among the ops that never became ready, each waiting for the one before."""
    blocked = [op for op, count in waiting.items() if count > 0]
    before = {later: op for op in blocked for later in precedence.successors[op]}
    op, seen = blocked[0], dict[Op, None]()
    while op not in seen:
        seen[op] = None
        op = before[op]
    walked = list(seen)
    return [op, *reversed(walked[walked.index(op) :])]


class _Fifo:
    """Takes the op that became ready last; of those ready from the start, the last inserted."""

    def __init__(self, residents: Residents) -> None:
        del residents
        self._heap: list[tuple[float, int, Op]] = []
        self._pushes = 0

    def push(self, op: Op) -> None:
        self._pushes += 1
        heappush(self._heap, (-op.settings.schedule_priority, -self._pushes, op))

    def pop(self) -> Op:
        return heappop(self._heap)[2]


class _Random:
    """Takes any op: one list per priority, from which a random element is swapped out."""

    def __init__(self, residents: Residents) -> None:
        del residents
        self._random = random.Random(_SEED)  # noqa: S311 - not for cryptography
        self._priorities: list[float] = []
        self._ops: dict[float, list[Op]] = {}

    def push(self, op: Op) -> None:
        priority = -op.settings.schedule_priority
        ops = self._ops.setdefault(priority, [])
        if not ops:
            heappush(self._priorities, priority)
        ops.append(op)

    def pop(self) -> Op:
        ops = self._ops[self._priorities[0]]
        index = self._random.randrange(len(ops))
        ops[index], ops[-1] = ops[-1], ops[index]
        op = ops.pop()
        if not ops:
            heappop(self._priorities)
        return op


class _Greedy:
    """Takes the op whose execution changes the live bytes by the smallest signed amount.

    The amount is what the op's outputs take up less what dies with it.  While an op is ready it
    changes only when one of its operands loses its second-last reader, and only downwards: then
    the op is pushed again with the new amount, and the outdated entry is skipped when it surfaces.
    """

    def __init__(self, residents: Residents) -> None:
        self._weights = residents.weights
        self._readers = dict(residents.readers)
        self._heap: list[tuple[float, int, int, Op]] = []
        self._ready: dict[Op, tuple[int, int]] = {}  # change of live bytes, number of the push
        self._executed: set[Op] = set()
        self._pushes = 0

    def push(self, op: Op) -> None:
        self._pushes += 1
        self._enqueue(op, self._change(op), self._pushes)

    def pop(self) -> Op:
        while True:
            _, change, push, op = heappop(self._heap)
            if self._ready.get(op) == (change, -push):
                break
        del self._ready[op]
        self._executed.add(op)
        for tensor in dict.fromkeys(op.present_inputs):
            if tensor in self._readers:
                self._count_read(tensor)
        return op

    def _enqueue(self, op: Op, change: int, push: int) -> None:
        self._ready[op] = (change, push)
        heappush(self._heap, (-op.settings.schedule_priority, change, -push, op))

    def _change(self, op: Op) -> int:
        readers, weights = self._readers, self._weights
        appears = sum(weights[tensor] for tensor in op.outputs if readers[tensor])
        dies = sum(weights[t] for t in dict.fromkeys(op.present_inputs) if readers.get(t) == 1)
        return appears - dies

    def _count_read(self, tensor: Tensor) -> None:
        self._readers[tensor] -= 1
        if self._readers[tensor] != 1:
            return
        last = next((user for user in tensor.uses if user not in self._executed), None)
        if last in self._ready:
            change, push = self._ready[last]
            self._enqueue(last, change - self._weights[tensor], push)


_READY_OPS: Final[Mapping[TieBreaker, Callable[[Residents], ReadyOps]]] = {
    TieBreaker.GREEDY: _Greedy,
    TieBreaker.FIFO: _Fifo,
    TieBreaker.RANDOM: _Random,
}
