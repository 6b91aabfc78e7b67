"""A smaller problem whose best orders are best orders of the whole.

Constraints that follow from others are dropped, then pairs of nodes are made one node where nothing
is lost by running them one right after the other:

* the second waits for the first alone, never leaves more live than it finds, and its step is never
  the higher one of the two: it may as well come at once ("drop": Conv, Relu);
* the second is the only one that waits for the first, which never leaves less live than it finds,
  and the step of the first is never the higher one: it may as well come late ("delay": what
  unpacks a weight, and the product that needs it).

Nodes that differ in nothing but their number run in the order of their numbers.

This holds for the peak, because the bytes live between two steps are a submodular function of what
has run: whatever runs earlier in addition makes the effect of a node on them smaller, never larger.

`merge_by_definition` is the definition; `popc.schedule._native` merges the same nodes in C.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Container, Sequence
from itertools import chain, pairwise
from typing import Final, TypeVar

from popc.schedule.flat import find_native, flattened, lists_of, remember_tables
from popc.schedule.problem import OrderingProblem, Takeover, order_topologically
from popc.schedule.reach import reduce_edges

__all__ = ["merge_by_definition", "merge_nodes", "simplify"]

# Merging ends when less than one in so many nodes goes: of small problems, when none does.
_ENOUGH: Final = 200
_LITTLE: Final = 8  # when less than one in so many goes of a problem that stays large
_Item = TypeVar("_Item")


def simplify(
    problem: OrderingProblem, *, reduces: bool = True, small: int | None = None
) -> OrderingProblem:
    """The smaller problem, for which only the peak counts.

    Constraints that follow from others are looked for if it ``reduces``: that takes the longest.
    What is not ``small`` after a first attempt that has done little is left as it is.
    """
    while True:
        successors = _order_twins(problem)
        if reduces:
            successors = reduce_edges(order_topologically(successors), successors)
        smaller = merge_nodes(problem, successors)
        is_small = small is None or len(smaller) <= small
        share = len(problem) // (_ENOUGH if is_small else _LITTLE)
        if len(smaller) >= len(problem) - share:
            return smaller
        problem = smaller  # merged nodes have new constraints in common


def merge_nodes(problem: OrderingProblem, successors: list[list[int]]) -> OrderingProblem:
    """``problem`` with ``successors`` for its own, and with nodes merged until none can be."""
    native = find_native()
    tables = flattened(problem, range(len(problem))) if native is not None else None
    if native is None or tables is None:
        return merge_by_definition(problem, successors)
    beside = (*lists_of(successors), *lists_of(problem.makes), array("q", problem.weights))
    return _read(problem, native.merge_nodes(*tables, *beside))


def merge_by_definition(problem: OrderingProblem, successors: list[list[int]]) -> OrderingProblem:
    """The definition of `merge_nodes`, in Python."""
    return _Merger(problem, successors).run()


def _read(problem: OrderingProblem, columns: Sequence[bytes]) -> OrderingProblem:
    """The smaller problem that C has written, see `Merge` in csrc/merge.h."""
    arrays = [array("q", column) for column in columns]
    numbers = [tuple(column) for column in arrays]
    takes = tuple(map(Takeover, numbers[11], _cut(numbers[12], numbers[13])))
    parts = _cut(numbers[0], tuple([problem.members[node] for node in numbers[1]]))
    smaller = OrderingProblem(
        members=[it[0] if len(it) == 1 else tuple(chain.from_iterable(it)) for it in parts],
        successors=list(map(list, _cut(numbers[2], numbers[3]))),
        waiting=list(numbers[8]),
        ranks=[0] * len(parts),
        ties=[],
        weights=problem.weights,
        frees=problem.frees,
        freed_with=problem.freed_with,
        stays=problem.stays,
        reads=_cut(numbers[4], numbers[5]),
        makes=_cut(numbers[6], numbers[7]),
        rise=list(numbers[9]),
        takes=_cut(numbers[10], takes),
        initial=problem.initial,
        floor=problem.floor,
        base=problem.base,
    )
    remember_tables(smaller, [*arrays[2:6], *arrays[10:14]])
    return smaller


def _cut(starts: Sequence[int], items: tuple[_Item, ...]) -> list[tuple[_Item, ...]]:
    """Lists out of one, by where they begin and end."""
    return [items[start:end] for start, end in pairwise(starts)]


def _order_twins(problem: OrderingProblem) -> list[list[int]]:
    """The successors of all nodes; of nodes that are alike, each is followed by the next."""
    successors = [list(others) for others in problem.successors]
    rough = list(zip(map(sum, successors), map(sum, problem.reads), problem.rise, strict=True))
    counts = Counter(rough)
    if len(counts) == len(rough):
        return successors
    alike = [node for node, kind in enumerate(rough) if counts[kind] > 1]
    readers, earlier = _readers(problem, alike), problem.predecessors()
    last: dict[object, int] = {}
    for node in alike:
        made = tuple([_kind_of(problem, buffer, readers) for buffer in problem.makes[node]])
        around = (*sorted(problem.successors[node]), -1, *sorted(earlier[node]), -1)
        read = tuple(sorted(problem.reads[node]))
        kind = (problem.rise[node], problem.takes[node], made, around, read)
        twin = last.get(kind)
        if twin is not None:
            successors[twin].append(node)
        last[kind] = node
    return successors


def _readers(problem: OrderingProblem, nodes: Sequence[int]) -> dict[int, list[int]]:
    """The readers of what ``nodes`` make."""
    readers: dict[int, list[int]] = {b: [] for node in nodes for b in problem.makes[node]}
    for node, buffers in enumerate(problem.reads):
        for buffer in buffers:
            if buffer in readers:
                readers[buffer].append(node)
    return readers


def _kind_of(
    problem: OrderingProblem, buffer: int, readers: dict[int, list[int]]
) -> tuple[object, ...]:
    """All that matters about a buffer."""
    leader = problem.freed_with[buffer]
    return (
        problem.weights[buffer],
        problem.frees[buffer],
        problem.stays[leader],
        tuple(readers.get(buffer, ())) if leader == buffer else leader,
    )


def _takes_without(takes: tuple[Takeover, ...], buffers: Container[int]) -> tuple[Takeover, ...]:
    """``takes`` if none of ``buffers`` can die."""
    found: list[Takeover] = []
    for nbytes, choices in takes:
        left = tuple(buffer for buffer in choices if buffer not in buffers)
        if left:
            found.append(Takeover(nbytes, left))
    return tuple(found)


class _Merger:
    """Working state: nodes are merged into the first of them; the others are gone."""

    def __init__(self, problem: OrderingProblem, successors: list[list[int]]) -> None:
        self.problem = problem
        self.weights, self.frees = problem.weights, problem.frees
        self.later = [dict.fromkeys(others) for others in successors]
        self.earlier: list[dict[int, None]] = [{} for _ in successors]
        for node, others in enumerate(successors):
            for other in others:
                self.earlier[other][node] = None
        self.members: list[list[tuple[int, ...]]] = [[members] for members in problem.members]
        self.gone = [False] * len(problem)
        self.rise = list(problem.rise)
        stays = {buffer for buffer, stays in enumerate(problem.stays) if stays}
        self.takes = [_takes_without(takes, stays) for takes in problem.takes]
        self.makes = [dict.fromkeys(made) for made in problem.makes]
        self.made = [sum(self.weights[buffer] for buffer in made) for made in problem.makes]
        self.reads = [dict.fromkeys(read) for read in problem.reads]
        self.readers = [0] * len(problem.weights)
        for read in problem.reads:
            for buffer in read:
                self.readers[buffer] += 1

    def run(self) -> OrderingProblem:
        """Merge until nothing can be merged."""
        changed = True
        while changed:
            changed = False
            for node in range(len(self.later)):
                while not self.gone[node] and self._merge_next(node):
                    changed = True
        return self._collect()

    def _merge_next(self, node: int) -> bool:
        """Merge a successor of ``node`` into it, if there is one that fits."""
        for other in self.later[node]:
            if len(self.earlier[other]) == 1 and self._can_drop(node, other):
                self._merge(node, other, *self._dropped(node, other))
                return True
        if len(self.later[node]) == 1:
            (other,) = self.later[node]
            if self._can_delay(node, other):
                self._merge(node, other, *self._delayed(node, other))
                return True
        return False

    # -- whether it is safe ----------------------------------------------------------------------

    def _can_drop(self, first: int, second: int) -> bool:
        sure = sum(self.frees[buffer] for buffer in self.reads[second] if self._dies_by_one(buffer))
        if self.made[second] > sure:
            return False
        saved = sum(
            nbytes for nbytes, buffers in self.takes[second] if any(map(self._dies_by_one, buffers))
        )
        return self.made[first] + self.rise[second] - saved <= self.rise[first]

    def _can_delay(self, first: int, second: int) -> bool:
        gain = self.made[first] - sum(
            self.frees[buffer] for buffer in self.reads[first] if not self.problem.stays[buffer]
        )
        taken = sum(nbytes for nbytes, _ in self.takes[second])
        return gain >= 0 and self.rise[first] <= gain + self.rise[second] - taken

    def _dies_by_one(self, buffer: int) -> bool:
        """True if one node alone decides when ``buffer`` dies."""
        return self.readers[buffer] == 1 and not self.problem.stays[buffer]

    # -- the step of both together ---------------------------------------------------------------

    def _dropped(self, first: int, second: int) -> tuple[int, tuple[Takeover, ...]]:
        """The needs of both for the first; what the second reads does not die before it."""
        return self.rise[first], _takes_without(self.takes[first], self.reads[second])

    def _delayed(self, first: int, second: int) -> tuple[int, tuple[Takeover, ...]]:
        """The needs of the second, on top of what the first has made."""
        rise = self.made[first] + self.rise[second]
        takes = [
            Takeover(self.frees[buffer], (buffer,))
            for buffer in self.reads[first]
            if self.frees[buffer]
            and buffer not in self.reads[second]
            and not self.problem.stays[buffer]
        ]
        for take in self.takes[second]:
            inner = [buffer for buffer in take.buffers if buffer in self.makes[first]]
            if any(map(self._dies_by_one, inner)):
                rise -= take.nbytes
            else:
                takes.append(take)
        return rise, tuple(takes)

    # -- merging ---------------------------------------------------------------------------------

    def _merge(self, first: int, second: int, rise: int, takes: tuple[Takeover, ...]) -> None:
        self.rise[first], self.takes[first] = rise, takes
        self._merge_buffers(first, second)
        self._merge_edges(first, second)
        self.members[first] += self.members[second]
        self.gone[second] = True

    def _merge_buffers(self, first: int, second: int) -> None:
        reads, makes = self.reads[first], self.makes[first]
        for buffer in self.reads[second]:
            if buffer in makes and self.weights[buffer] == self.frees[buffer]:
                self.readers[buffer] -= 1  # what stays inside a node is no buffer
                if not self.readers[buffer] and not self.problem.stays[buffer]:
                    del makes[buffer]
                    self.made[first] -= self.weights[buffer]
            elif buffer in reads:
                self.readers[buffer] -= 1
            else:
                reads[buffer] = None
        makes.update(self.makes[second])
        self.made[first] += self.made[second]

    def _merge_edges(self, first: int, second: int) -> None:
        for other in self.later[second]:
            del self.earlier[other][second]
            self.earlier[other][first] = None
            self.later[first][other] = None
        for other in self.earlier[second]:
            del self.later[other][second]
            if other != first:
                self.later[other][first] = None
                self.earlier[first][other] = None

    def _collect(self) -> OrderingProblem:
        kept = [node for node, gone in enumerate(self.gone) if not gone]
        numbers = {node: number for number, node in enumerate(kept)}
        return OrderingProblem(
            members=[tuple(op for part in self.members[node] for op in part) for node in kept],
            successors=[[numbers[other] for other in self.later[node]] for node in kept],
            waiting=[len(self.earlier[node]) for node in kept],
            ranks=[0] * len(kept),
            ties=[],
            weights=self.weights,
            frees=self.frees,
            freed_with=self.problem.freed_with,
            stays=self.problem.stays,
            reads=[tuple(self.reads[node]) for node in kept],
            makes=[tuple(self.makes[node]) for node in kept],
            rise=[self.rise[node] for node in kept],
            takes=[self.takes[node] for node in kept],
            initial=self.problem.initial,
            floor=self.problem.floor,
            base=self.problem.base,
        )
