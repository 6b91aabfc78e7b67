"""Problems as flat tables, for the search in C.

The module in C is an optional part of the package: where it has not been built, what it does is
done in Python, with the same results.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain
from types import ModuleType
from typing import Any, Final, NamedTuple

from popc.schedule.problem import OrderingProblem

__all__ = [
    "MOST",
    "Tables",
    "bytes_made",
    "find_native",
    "first_live",
    "flattened",
    "lists_of",
    "remember_tables",
    "why_missing",
]

MOST: Final = 1 << 60  # sums in C stay below it
_FUNCTIONS: Final = frozenset(
    (
        *("add_certain_bytes", "find_least_bytes", "measure_steps", "merge_nodes", "move_blocks"),
        *("order_nodes", "reduce_links", "search_exactly"),
    )
)


class Tables(NamedTuple):
    """A problem and an order of its nodes, in arrays of 64-bit integers.

    Attributes:
        columns: Lists are two columns, where each list begins and all items: the nodes that wait
            for a node, the buffers that it reads, the bytes that it takes over, the buffers that
            decide over each of these, the nodes that it is tied to.  Then, of each buffer, the
            bytes that disappear with it and whether it stays; of each node, the bytes that it
            makes, its rank, its rise, and whether it takes time.
        order: What the search changes.
    """

    columns: tuple[array[int], ...]
    order: array[int]


@cache
def find_native() -> Any | None:
    """The module in C, if it has been built, and not before its sources were changed."""
    module = _built()
    return module if module is not None and vars(module).keys() >= _FUNCTIONS else None


def why_missing() -> str:
    """The reason why schedules are searched in Python; empty if they are not."""
    if find_native() is not None:
        return ""
    if _built() is None:
        return "the search in C has not been built"
    return "the search in C is older than its sources: install popc once more"


def _built() -> ModuleType | None:
    try:
        from popc.schedule import _native
    except ImportError:
        return None
    module: ModuleType = _native
    return module


def flattened(problem: OrderingProblem, order: Sequence[int]) -> Tables | None:
    """The tables of ``problem``; ``None`` if it has numbers that are too large for them."""
    columns = problem.remembered("columns", _columns)
    return None if columns is None else Tables(columns, array("q", order))


def first_live(problem: OrderingProblem) -> int:
    """The bytes live before the first step."""
    return problem.base + sum(problem.weights[buffer] for buffer in problem.initial)


def remember_tables(problem: OrderingProblem, lists: Sequence[array[int]]) -> None:
    """Save `flattened` some work: its first columns, those of lists but for ties, are known."""
    problem.remembered("columns", lambda it: _completed(it, lists))


def _columns(problem: OrderingProblem) -> tuple[array[int], ...] | None:
    takes = list(chain.from_iterable(problem.takes))
    lists = (
        *lists_of(problem.successors),
        *lists_of(problem.reads),
        _starts(problem.takes),
        array("q", [take.nbytes for take in takes]),
        *lists_of([take.buffers for take in takes]),
    )
    return _completed(problem, lists)


def _completed(
    problem: OrderingProblem, lists: Sequence[array[int]]
) -> tuple[array[int], ...] | None:
    """The columns that begin with those of ``lists``, if numbers are small enough."""
    most = problem.base + sum(map(abs, problem.rise)) + sum(problem.weights)
    if most * (len(problem) + 1) >= MOST:
        return None
    ties: list[list[int]] = [[] for _ in problem.members]
    for first, second in problem.ties:
        ties[first].append(second)
        ties[second].append(first)
    return (
        *lists,
        *lists_of(ties),
        array("q", problem.frees),
        array("q", problem.stays),
        array("q", bytes_made(problem)),
        array("q", problem.ranks),
        array("q", problem.rise),
        array("q", map(bool, problem.members)),
    )


def bytes_made(problem: OrderingProblem) -> list[int]:
    """The bytes that each node makes; most make one buffer."""
    weights = problem.weights
    return [
        weights[made[0]] if len(made) == 1 else sum(weights[buffer] for buffer in made)
        for made in problem.makes
    ]


def lists_of(lists: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """The places where lists begin, and all items."""
    return _starts(lists), array("q", chain.from_iterable(lists))


def _starts(lists: Iterable[Sequence[object]]) -> array[int]:
    return array("q", accumulate(map(len, lists), initial=0))
