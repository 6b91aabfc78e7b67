"""Local search: blocks of nodes are shifted to where they keep less memory live.

A move takes some nodes that follow each other and puts them earlier or later, as far as constraints
allow, but no further than a window.  It is made if it lowers the first of these that it changes:
the attraction of priorities, the stretch of ties, the bytes live in each step added up; the peak
may not rise, if it is to be kept.  Blocks of one node are tried first, longer ones when nothing is
left to gain.  After a success shorter ones are tried again, but only of nodes near by; in the end
everything is tried once more, until no block that there is can be moved with a gain.

This is the definition; `popc.schedule._native` does the same in C, to the last move.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from popc.schedule.effort import Effort
from popc.schedule.flat import find_native, first_live, flattened
from popc.schedule.problem import OrderingProblem

__all__ = ["ShiftLimits", "Shifted", "descend", "shift_blocks", "shift_by_definition"]

_WINDOWS: Final = (16, 64, 256)  # what is near is tried first: it costs little, and gains most

_SEED: Final = 1  # any number will do: what is tried is the same on every run


class ShiftLimits(NamedTuple):
    """The limits of local search.

    Attributes:
        moves: The most moves that are made.
        keeps_peak: Whether no step of a move may be higher than the peak of the order given.
        window: The most places by which a move shifts a block, and the most nodes that it has.
        idle: The most work that is done without a move.
    """

    moves: int = 1 << 40
    keeps_peak: bool = True
    window: int = 1 << 40
    idle: int = 1 << 40


class Shifted(NamedTuple):
    """An order, and how it was found.

    Attributes:
        moves, work: The moves that have been made, and the work that it took.
        is_settled: Whether no move is left that gains.
        looked: In so many windows, the narrowest first, every move had been tried before what was
            moved in the next one.
    """

    order: tuple[int, ...]
    moves: int
    work: int
    is_settled: bool = False
    looked: int = 0


def descend(
    problem: OrderingProblem,
    order: Sequence[int],
    effort: Effort,
    *,
    moves: int,
    keeps_peak: bool,
    is_first_look: bool = False,
    looked: int = 0,
    idle: int = 1 << 40,
) -> Shifted:
    """Improve ``order`` in windows of growing size; the peak may rise if it is not to be kept.

    A first look leaves the wider windows out; a later one goes on where one has ended that has
    ``looked`` in so many: wider ones have the moves of the narrower, and cost less for each gain.
    A window is left when as much work as ``idle`` has found no move.
    """
    found = Shifted(tuple(order), 0, 0, looked=looked)
    for window in _WINDOWS[:1] if is_first_look else _WINDOWS[min(looked, len(_WINDOWS) - 1) :]:
        limits = ShiftLimits(moves - found.moves, keeps_peak, window, idle)
        if limits.moves <= 0 or effort.is_spent(found.work):
            return found._replace(is_settled=False)
        left = effort.part(1, found.work)
        shifted = shift_blocks(problem, found.order, left, limits)
        moved, worked = found.moves + shifted.moves, found.work + shifted.work
        is_widest = window == _WINDOWS[-1] or window >= len(order)
        may_be_cut = moved >= moves or effort.is_spent(worked) or shifted.work > idle
        done = looked if may_be_cut else _WINDOWS.index(window) + 1
        is_settled = is_widest and not may_be_cut
        found = Shifted(shifted.order, moved, worked, is_settled, max(found.looked, done))
        if window >= len(order):
            break
    return found


def shift_blocks(
    problem: OrderingProblem, order: Sequence[int], effort: Effort, limits: ShiftLimits
) -> Shifted:
    """Improve ``order`` until no move does, or a limit or the effort is reached."""
    native = find_native()
    tables = flattened(problem, order) if native is not None else None
    if native is None or tables is None:
        return shift_by_definition(problem, order, effort, limits)
    moves, work = native.move_blocks(
        tables.columns, tables.order, _shuffled(len(order)), first_live(problem), *limits, *effort
    )
    return Shifted(tuple(tables.order), moves, work)


def shift_by_definition(
    problem: OrderingProblem, order: Sequence[int], effort: Effort, limits: ShiftLimits
) -> Shifted:
    """The definition of `shift_blocks`, in Python."""
    shifter = _Shifter(problem, order, effort, limits)
    shifter.run()
    return Shifted(tuple(shifter.order), shifter.moves, shifter.work)


@lru_cache(maxsize=1)  # the same problem is looked at many times
def _shuffled(count: int) -> array[int]:
    """All nodes in the order in which blocks that begin with them are tried."""
    nodes = array("q", range(count))
    random.Random(_SEED).shuffle(nodes)  # noqa: S311 - not for cryptography
    return nodes


class _Gain(NamedTuple):
    """By how much a move changes attraction, stretch and the sum of live bytes."""

    attraction: int
    stretch: int
    total: int


_NO_GAIN: Final = _Gain(0, 0, 0)


class _Shifter:
    def __init__(
        self, problem: OrderingProblem, order: Sequence[int], effort: Effort, limits: ShiftLimits
    ) -> None:
        self.problem = problem
        self.effort, self.limits = effort, limits
        self.order = list(order)
        self.moves = self.work = 0
        self.moved = 0  # the work when the last move was made
        self.tried = [0] * len(order)  # the longest block that begins with a node and stays
        self.place = [0] * len(order)
        self.earlier: list[list[int]] = [[] for _ in order]
        for node, others in enumerate(problem.successors):
            for other in others:
                self.earlier[other].append(node)
        self.ties: dict[int, list[int]] = {}
        for first, second in problem.ties:
            self.ties.setdefault(first, []).append(second)
            self.ties.setdefault(second, []).append(first)
        self.made = [sum(problem.weights[b] for b in made) for made in problem.makes]
        self.last: list[int] = [-1] * len(problem.weights)  # place of the last reader
        self.live = [0] * (len(order) + 1)  # before each place
        self.live[0] = first_live(problem)
        self._refresh(0, len(order))
        self.peak = max(self._steps(0, len(order)), default=0)

    # -- the search ------------------------------------------------------------------------------

    def run(self) -> None:
        """Rounds over all blocks, of growing length as long as nothing changes."""
        nodes = _shuffled(len(self.order))
        length, settled = 1, 0  # the moves made when everything was tried for the last time
        while not self._is_over():
            moves = self.moves
            for node in nodes:
                if self.tried[node] == length - 1:
                    self._try(node, length)
                    if self._is_over():
                        return
            if self.moves > moves:
                length = 1
            elif self._can_any_move(length):
                length += 1
            elif self.moves > settled:
                length, settled = 1, self.moves
                self.tried = [0] * len(nodes)
            else:
                return

    def _is_over(self) -> bool:
        is_idle = self.work - self.moved > self.limits.idle
        return is_idle or self.moves >= self.limits.moves or self.effort.is_spent(self.work)

    def _can_any_move(self, length: int) -> bool:
        """True if a block that is longer than ``length``, but not too long, has room."""
        if length >= self.limits.window:
            return False
        for place in range(len(self.order) - length):
            self.work += 1
            if not self._is_wedged(place, place + length + 1):
                return True
        return False

    def _try(self, node: int, length: int) -> None:
        """Make the best move of the block that begins with ``node``, if one is worth it."""
        self.tried[node] = length
        start = self.place[node]
        if start + length > len(self.order):
            return
        self.work += 1
        if self._is_wedged(start, start + length):
            return
        low, high = self._room(start, length)
        best, target = _NO_GAIN, start
        moves = self._earlier(start, length, low) if low < start else []
        moves += self._later(start, length, high) if high > start else []
        for goal, gain in moves:
            if gain < best:
                best, target = gain, goal
        if target != start and self._accept(start, length, target, best):
            self.moves += 1
            self.moved = self.work
            first, end = min(start, target), max(start, target) + length
            for other in self.order[max(first - length, 0) : end + length]:
                self.tried[other] = 0

    def _is_wedged(self, start: int, end: int) -> bool:
        """True if the neighbours on both sides of a block hold it where it is."""

        def is_inside(node: int) -> bool:
            return start <= self.place[node] < end

        before, behind = self.order[max(start - 1, 0)], self.order[min(end, len(self.order) - 1)]
        return (start == 0 or any(map(is_inside, self.problem.successors[before]))) and (
            end == len(self.order) or any(map(is_inside, self.earlier[behind]))
        )

    def _room(self, start: int, length: int) -> tuple[int, int]:
        """The lowest and the highest place at which the block may begin."""
        window, place = self.limits.window, self.place
        low, high = max(start - window, 0), min(start + window + length, len(self.order))
        for node in self.order[start : start + length]:
            for other in self.earlier[node]:
                if low <= place[other] < start:
                    low = place[other] + 1
            for other in self.problem.successors[node]:
                if start + length <= place[other] < high:
                    high = place[other]
        return low, high - length

    # -- what moves gain -------------------------------------------------------------------------

    def _earlier(self, start: int, length: int, low: int) -> list[tuple[int, _Gain]]:
        """The gain of beginning at each place from ``start`` - 1 down to ``low``."""
        problem, order = self.problem, self.order
        block = order[start : start + length]
        rank = sum(problem.ranks[node] for node in block)
        made = sum(self.made[node] for node in block)
        dying = self._dying(start, length)
        loose = sum(problem.frees[buffer] for buffer in dying)  # what dies as early as it may
        attraction = total = 0
        found: list[tuple[int, _Gain]] = []
        for place in range(start - 1, low - 1, -1):
            node = order[place]
            attraction += length * problem.ranks[node] - rank
            total += made - loose - length * self.made[node]
            for buffer in problem.reads[node]:
                if buffer in dying:  # from now on it is this node after which it dies
                    frees = problem.frees[buffer]
                    loose -= frees
                    total += frees * (start + length - dying.pop(buffer))
                elif self.last[buffer] == place:
                    total += length * problem.frees[buffer]
            found.append((place, _Gain(attraction, self._stretch(start, length, place), total)))
        self.work += start - low + length
        return found

    def _later(self, start: int, length: int, high: int) -> list[tuple[int, _Gain]]:
        """The gain of beginning at each place from ``start`` + 1 up to ``high``."""
        problem, order = self.problem, self.order
        block = order[start : start + length]
        rank = sum(problem.ranks[node] for node in block)
        made = sum(self.made[node] for node in block)
        loose = sum(problem.frees[buffer] for buffer in self._dying(start, length))
        reads = {
            buffer: start + index
            for index, node in enumerate(block)
            for buffer in problem.reads[node]
        }
        attraction = total = 0
        found: list[tuple[int, _Gain]] = []
        for place in range(start + 1, high + 1):
            node = order[place + length - 1]
            attraction += rank - length * problem.ranks[node]
            total += loose - made + length * self.made[node]
            for buffer in problem.reads[node]:
                if self.last[buffer] != place + length - 1:
                    continue
                frees = problem.frees[buffer]
                if buffer in reads:  # from now on it is the block after which it dies
                    loose += frees
                    total += frees * (reads[buffer] + 1 - start - length)
                else:
                    total -= length * frees
            found.append((place, _Gain(attraction, self._stretch(start, length, place), total)))
        self.work += high - start + length
        return found

    def _dying(self, start: int, length: int) -> dict[int, int]:
        """The buffers that die in the block, with the place where they do."""
        return {
            buffer: self.last[buffer]
            for node in self.order[start : start + length]
            for buffer in self.problem.reads[node]
            if start <= self.last[buffer] < start + length
        }

    def _stretch(self, start: int, length: int, target: int) -> int:
        """By how much a move changes the distance of tied nodes."""
        if not self.ties:
            return 0
        order = self.order
        first, end = min(start, target), max(start, target) + length
        new = dict(zip(self._moved(start, length, target), range(first, end), strict=True))
        change = 0
        for node in order[first:end]:
            for other in self.ties.get(node, ()):
                if other in new and other < node:
                    continue  # seen from the other side
                before = abs(self.place[node] - self.place[other])
                change += abs(new[node] - new.get(other, self.place[other])) - before
        self.work += end - first
        return change

    # -- making moves ----------------------------------------------------------------------------

    def _moved(self, start: int, length: int, target: int) -> list[int]:
        """The part of the order that a move changes, as it is afterwards."""
        order, end = self.order, start + length
        if target < start:
            return order[start:end] + order[target:start]
        return order[end : target + length] + order[start:end]

    def _accept(self, start: int, length: int, target: int, gain: _Gain) -> bool:
        """Make a move if the peak allows; what is taken over is part of the total only now."""
        first, end = min(start, target), max(start, target) + length
        old = self.order[first:end]
        before = self._steps(first, end)
        self.order[first:end] = self._moved(start, length, target)
        self._refresh(first, end)
        after = self._steps(first, end)
        self.work += 2 * (end - first)
        exact = gain._replace(total=sum(after) - sum(before))
        if exact < _NO_GAIN and (not self.limits.keeps_peak or max(after) <= max(self.peak, 0)):
            return True
        self.order[first:end] = old
        self._refresh(first, end)
        return False

    def _refresh(self, first: int, end: int) -> None:
        """Find again what depends on the order from place ``first`` to ``end``."""
        problem, order = self.problem, self.order
        for place in range(first, end):
            self.place[order[place]] = place
        seen: set[int] = set()
        change = [0] * (end - first)
        for place in range(end - 1, first - 1, -1):
            node = order[place]
            change[place - first] += self.made[node]
            for buffer in problem.reads[node]:
                if self.last[buffer] < end and buffer not in seen and not problem.stays[buffer]:
                    seen.add(buffer)
                    self.last[buffer] = place
                    change[place - first] -= problem.frees[buffer]
        self.live[first : end + 1] = accumulate(change, initial=self.live[first])

    def _steps(self, first: int, end: int) -> list[int]:
        """The bytes live in the steps from place ``first`` to ``end``; barriers take no time."""
        problem = self.problem
        steps: list[int] = []
        for place in range(first, end):
            node = self.order[place]
            if not problem.members[node]:
                steps.append(0)
                continue
            step = self.live[place] + problem.rise[node]
            for nbytes, buffers in problem.takes[node]:
                if any(self.last[buffer] == place for buffer in buffers):
                    step -= nbytes
            steps.append(step)
        return steps
