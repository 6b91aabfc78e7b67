"""A group of threads of one process: what MPI does, without MPI."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Final, TypeVar

from popc_runtime.errors import GroupError
from popc_runtime.groups.group import Group
from popc_runtime.groups.transport import Span

__all__ = ["run_loopback"]

_T = TypeVar("_T")
_LOOK_EVERY: Final = 0.02  # seconds between two looks at a deadline


class _Table:
    """The table on which the threads lay down what they send."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = Condition()
        self.offers: dict[int, dict[int, tuple[memoryview, Sequence[Span]]]] = defaultdict(dict)
        self.taken: dict[int, int] = defaultdict(int)
        self.failed: tuple[int, str] | None = None


class _Loopback:
    """See `Transport`."""

    def __init__(self, table: _Table, rank: int) -> None:
        self.rank, self.size = rank, table.size
        self._table = table
        self._number = 0

    def exchange(
        self,
        outgoing: memoryview,
        sent: Sequence[Span],
        incoming: memoryview,
        received: Sequence[Span],
        is_over: Callable[[], bool],
    ) -> bool:
        """See `Transport`."""
        table, number = self._table, self._number
        self._number += 1
        with table.changed:
            offers = table.offers[number]
            offers[self.rank] = (outgoing, sent)
            table.changed.notify_all()
            if not self._wait(lambda: len(offers) == self.size, is_over):
                return False
        for rank, (memory, spans) in offers.items():
            (source, there), (target, room) = spans[self.rank], received[rank]
            count = min(there, room)
            incoming[target : target + count] = memory[source : source + count]
        with table.changed:
            table.taken[number] += 1
            table.changed.notify_all()
            # Nobody's memory changes before all have looked at it.
            return self._wait(lambda: table.taken[number] == self.size, is_over)

    def _wait(self, is_done: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
        while not is_done():
            if self._table.failed is not None:
                rank, text = self._table.failed
                raise GroupError(
                    f"rank {rank} of {self.size} goes no further: {text}", subject=f"rank {rank}"
                )
            if is_over():
                return False
            self._table.changed.wait(_LOOK_EVERY)
        return True

    def tell(self, text: str) -> None:
        """See `Transport`."""
        with self._table.changed:
            self._table.failed = self._table.failed or (self.rank, text)
            self._table.changed.notify_all()

    def close(self) -> None:
        """See `Transport`."""


def run_loopback(size: int, function: Callable[[Group], _T]) -> list[_T]:
    """Call ``function`` in ``size`` threads that are a group; the results, by rank.

    Raises:
        Exception: of the thread that failed first, or of the first that did.
    """
    table = _Table(size)

    def run(rank: int) -> _T:
        with Group(_Loopback(table, rank)) as group:
            return function(group)

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    if table.failed is not None:
        futures[table.failed[0]].result()
    return [future.result() for future in futures]
