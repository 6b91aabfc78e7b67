"""The parts that are worth a graph of their own.

Parts are taken greedily, the one that saves most first: its value for every occurrence but one.
What has been taken is one op from then on, so that a longer part with the same op inside is found
later, and is only worth what else it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple

from popc.ir import Op
from popc.transforms.outlining.instances import Instance, best_interval, equal_constants
from popc.transforms.outlining.repeats import Suffixes
from popc.transforms.outlining.sequence import Program, Sequenced, code_value, exchange_of
from popc.transforms.outlining.terms import Terms
from popc_runtime.ground.frozen import mutable

__all__ = ["Match", "find_matches"]

_UNIT: Final = 1000  # values are whole numbers of 1/_UNIT
_LEAST_OPS: Final = 2  # a call of a single op saves nothing
# How many ops may be looked at, for each op of the program.
_WORK: Final = 200


class Match(NamedTuple):
    """Occurrences of one part, and what it is worth to have it once.

    What the cycles of a pipeline repeat is one place: stages are there once anyway.
    """

    instances: list[Instance]
    starts: Sequence[int]
    places: int
    value: float

    @property
    def saving(self) -> float:
        """The saving of all places but one."""
        return (self.places - 1) * self.value


class _Candidate(NamedTuple):
    """A part that may be taken, the one that saves most first, as far as is known."""

    negative_saving: float
    negative_length: int
    start: int


@mutable
class _Finder:
    program: Program
    sequence: Sequenced
    suffixes: Suffixes
    terms: Terms
    covered: bytearray
    totals: list[int]
    breaks: _Breaks
    heap: list[_Candidate] = field(default_factory=list[_Candidate])
    seen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    work: int = 0

    def add(self, start: int, length: int) -> None:
        """Consider a part, unless it is known or cannot be worth it."""
        value = self._sum(start, length)
        value += self.breaks.encased(start, start + length) * self.terms.break_cost
        if length < _LEAST_OPS or value <= self.terms.threshold:
            return
        self._push(start, length, value)

    def _push(self, start: int, length: int, value: float) -> None:
        low, high = self.suffixes.range(start, length)
        if (low, length) not in self.seen:
            self.seen.add((low, length))
            heappush(self.heap, _Candidate(-(high - low - 1) * value, -length, start))

    def _sum(self, start: int, length: int) -> float:
        """The values of ops; exact, so that equal parts are worth the same."""
        return (self.totals[start + length] - self.totals[start]) / _UNIT

    def run(self) -> Iterator[Match]:
        """The parts that are worth it, each of ops that no earlier one has."""
        limit = _WORK * (len(self.covered) + 1)
        while self.heap and self.work < limit:
            candidate = heappop(self.heap)
            start, length = candidate.start, -candidate.negative_length
            match = self._best(start, length)
            if match is None:
                continue
            # Now the saving is known, until another part is taken.  If this one is, occurrences
            # that are wired otherwise are left.
            heappush(self.heap, candidate._replace(negative_saving=-match.saving))
            if self.heap[0].negative_saving >= -match.saving:
                for position in match.starts:
                    self.covered[position : position + length] = b"\1" * length
                yield match

    def _best(self, start: int, length: int) -> Match | None:
        """The match of the most valuable occurrences that are free and wired alike."""
        groups: dict[object, list[int]] = {}
        instances: dict[int, Instance] = {}
        end = -1
        for position in self.suffixes.occurrences(start, length):
            if position < end or self.covered.find(1, position, position + length) >= 0:
                continue
            end = position + length
            instance = instances[position] = self._instance(position, length)
            groups.setdefault(instance.wiring, []).append(position)
        found = [
            match
            for positions in groups.values()
            if self._places(positions) > 1
            if (match := self._match(positions, length, instances)) is not None
        ]
        return max(found, key=lambda candidate: candidate.saving, default=None)

    def _instance(self, position: int, length: int) -> Instance:
        self.work += length
        entries = self.sequence.entries[position : position + length]
        graph = entries[0].graph
        assert graph is not None, "a barrier is no part of anything"
        return Instance.of(self.program, graph, [entry.op for entry in entries if entry.op])

    def _match(
        self, positions: Sequence[int], length: int, instances: dict[int, Instance]
    ) -> Match | None:
        alike = [instances[position] for position in positions]
        value = self._value(positions, length)
        if value <= self.terms.threshold:
            return None
        if self.terms.prune:
            self.work += length
            needed = alike[0].results(self.program)
            free = equal_constants(alike)
            worth, first, last = best_interval(self.program, alike[0], needed, free)
            if worth <= 0:
                return None
            if last - first < length:
                self.add(positions[0] + first, last - first)
                return None
        return Match(alike, positions, self._places(positions), value)

    def _places(self, positions: Sequence[int]) -> int:
        ops = (self.sequence.entries[position].op for position in positions)
        models = self.program.models
        return len({models.get(op, op) for op in ops if op is not None})

    def _value(self, positions: Sequence[int], length: int) -> float:
        """The value of one occurrence; breaks and their absence are shared by all."""
        start = positions[0]
        value = self._sum(start, length)
        cost = self.terms.break_cost / len(positions)
        ends = [(position, position + length) for position in positions]
        cut = max(self.breaks.cut(first, last) for first, last in ends)
        encased = min(self.breaks.encased(first, last) for first, last in ends)
        return value + cost * (encased - cut)


class _Breaks:
    """Runs of an exchange and of what follows it elsewhere, which may overlap with it."""

    def __init__(self, sequence: Sequenced) -> None:
        self._runs: list[tuple[int, int]] = []
        entries = sequence.entries
        for start, (_, op) in enumerate(entries):
            if op is None or exchange_of(op) is None:
                continue
            end = start + 1
            for place, (graph, other) in enumerate(entries[end:], end):
                if other is None and graph is None:
                    continue  # bins and phases do not keep exchange from overlapping
                if not _is_elsewhere(other, op):
                    break
                end = place + 1
            if end > start + 1:
                self._runs.append((start, end))

    def cut(self, start: int, end: int) -> int:
        """The number of runs that lie partly between ``start`` and ``end``."""
        return sum(
            first < end and start < last and not (start <= first and last <= end)
            for first, last in self._runs
        )

    def encased(self, start: int, end: int) -> int:
        """The number of runs that lie wholly there."""
        return sum(start <= first and last <= end for first, last in self._runs)


def _is_elsewhere(other: Op | None, op: Op) -> bool:
    if other is None:
        return False
    ours, theirs = op.settings, other.settings
    here = (ours.virtual_graph, ours.tile_set)
    return (theirs.virtual_graph, theirs.tile_set) != here


def find_matches(program: Program, sequence: Sequenced, terms: Terms) -> list[Match]:
    """Parts of ``sequence`` to outline; no op is in two of them."""
    if not sequence.symbols:
        return []
    values = [0 if op is None else round(_UNIT * code_value(op)) for _, op in sequence.entries]
    finder = _Finder(
        program,
        sequence,
        Suffixes.of(sequence.symbols),
        terms,
        bytearray(len(values)),
        [0, *accumulate(values)],
        _Breaks(sequence),
    )
    for repeat in finder.suffixes.repeats():
        finder.add(repeat.start, repeat.length)
    return list(finder.run())
