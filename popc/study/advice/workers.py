"""Work on one request in several processes; results do not depend on how many there are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Any, Final, TypeVar

from popc.request import CompileRequest
from popc.study.advice.trial import Workshop
from popc_runtime.errors import ResourceError, SpokenHint

__all__ = ["Pool", "available_cores", "open_pool"]

_T = TypeVar("_T")
_R = TypeVar("_R")

# That of a worker process, which the initializer makes: it runs where the work does.
_WORKSHOP: Final[ContextVar[Workshop]] = ContextVar("_WORKSHOP")


class Pool:
    """Calls functions with a `Workshop` and an item, here or in other processes."""

    def __init__(self, workshop: Workshop, executor: ProcessPoolExecutor | None) -> None:
        self._workshop = workshop
        self._executor = executor

    def map(
        self,
        function: Callable[[Workshop, _T], _R],
        items: Sequence[_T],
        on_done: Callable[[int, _R], None],
    ) -> list[_R]:
        """``function`` of every item, in the order of the items.

        ``on_done`` is told each result as it comes, with the number of its item.

        Raises:
            ResourceError: a process has died, for want of memory for example.
        """
        found: dict[int, _R] = {}
        for index, result in self._results(function, items):
            found[index] = result
            on_done(index, result)
        return [found[index] for index in range(len(items))]

    def _results(
        self, function: Callable[[Workshop, _T], _R], items: Sequence[_T]
    ) -> Iterator[tuple[int, _R]]:
        if self._executor is None or len(items) == 1:
            yield from ((index, function(self._workshop, item)) for index, item in enumerate(items))
            return
        futures: dict[Future[Any], int] = {
            self._executor.submit(_work, function, item): index for index, item in enumerate(items)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise ResourceError(
                "a process that planned programs has died; it may have needed too much memory",
                hint=SpokenHint(
                    "jobs=1 plans one program at a time", "--jobs 1 plans one program at a time"
                ),
            ) from error


@contextmanager
def open_pool(workshop: Workshop, jobs: int = 1) -> Iterator[Pool]:
    """A pool of ``jobs`` processes; with 1, no other process is started."""
    if jobs <= 1:
        yield Pool(workshop, None)
        return
    executor = ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=_start, initargs=(workshop.request,)
    )
    try:
        yield Pool(workshop, executor)
    except BaseException:
        _abandon(executor)
        raise
    executor.shutdown(cancel_futures=True)


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _abandon(executor: ProcessPoolExecutor) -> None:
    """Stop at once: nobody waits for what is being planned."""
    workers = list((executor._processes or {}).values())  # noqa: SLF001 - there is no public way
    for worker in workers:
        worker.terminate()
    executor.shutdown(wait=True, cancel_futures=True)


def _start(request: CompileRequest) -> None:
    """In a worker: Ctrl-C is for the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _WORKSHOP.set(Workshop(request))


def _work(function: Callable[[Workshop, _T], _R], item: _T) -> _R:
    return function(_WORKSHOP.get(), item)
