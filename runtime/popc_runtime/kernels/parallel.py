"""Work that several threads share.

A kernel cuts its work into chunks of calls that do not touch each other's results.  The thread that
runs the program and the helpers each take the next chunk until none is left, so a helper that
wakes up late (which takes tens of microseconds) or loses its core costs nothing but its help.  How
the work is cut depends on the work alone, so results do not depend on the number of threads.

numpy releases the interpreter lock while it computes, and the BLAS library runs one thread per
caller (`popc_runtime.device.blas`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.kernels.binding import Binding, Call, Scratch

__all__ = ["in_parallel", "thread_count"]

_VARIABLE: Final = "POPC_NUM_THREADS"
_WORTHWHILE: Final = 150e-6  # seconds of work below which waking a helper does not pay

Chunk: TypeAlias = "tuple[Call, ...]"


@cache
def thread_count() -> int:
    """Threads that a program runs on: ``POPC_NUM_THREADS``, or the cores that the process may use.

    Raises:
        ValueError: the variable is not a positive number.
    """
    wanted = os.environ.get(_VARIABLE, "")
    if not wanted:
        return _cores()
    if not (wanted.isdecimal() and int(wanted) > 0):
        raise ValueError(f"{_VARIABLE} must be a positive number, not {wanted!r}")
    return int(wanted)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parallel(
    binding: Binding, seconds: float, chunks: Callable[[Binding], Iterable[Sequence[Call]]]
) -> tuple[Call, ...]:
    """The calls of an instruction whose work can be shared.

    Args:
        binding: The instruction.
        seconds: About how long the work takes on one thread.
        chunks: Binds the work: called once for each thread, with a ``binding`` that has that
            thread's scratch memory.  Chunks of equal position must do the same.
    """
    own = [tuple(chunk) for chunk in chunks(binding)]
    helpers = min(thread_count(), len(own)) - 1
    if helpers < 1 or seconds < _WORTHWHILE:
        return tuple(call for chunk in own for call in chunk)
    pool = _pool()
    lanes = []
    for scratch in pool.scratch[:helpers]:
        scratch.reset()
        lanes.append([tuple(chunk) for chunk in chunks(replace(binding, scratch=scratch))])
    return (_Shared(own, lanes),)


def _work(lane: Sequence[Chunk], positions: Iterator[int]) -> None:
    for position in positions:
        for call in lane[position]:
            call()


class _Shared:
    """A call that shares its chunks with the helpers, if nobody else is using them."""

    def __init__(self, own: Sequence[Chunk], lanes: Sequence[Sequence[Chunk]]) -> None:
        self._own = own
        self._lanes = lanes

    def __call__(self) -> None:
        positions = iter(range(len(self._own)))
        pool = _pool()
        if not pool.lock.acquire(blocking=False):
            _work(self._own, positions)
            return
        try:
            helpers = pool.helpers[: len(self._lanes)]
            for helper, lane in zip(helpers, self._lanes, strict=True):
                helper.start(lane, positions)
            try:
                _work(self._own, positions)
            finally:
                for helper in helpers:
                    helper.finish()
        finally:
            pool.lock.release()


class _Helper:
    """A thread that waits for work."""

    def __init__(self, number: int) -> None:
        self._jobs: SimpleQueue[tuple[Sequence[Chunk], Iterator[int]]] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        thread = threading.Thread(target=self._run, name=f"popc-helper-{number}", daemon=True)
        thread.start()

    def start(self, lane: Sequence[Chunk], positions: Iterator[int]) -> None:
        """Take chunks of ``lane`` by the positions that are left, as soon as awake."""
        self._jobs.put((lane, positions))

    def finish(self) -> None:
        """Wait until the chunks taken are done; if none was, do not wait for the thread to wake."""
        try:
            self._jobs.get_nowait()
        except Empty:
            error = self._done.get()
            if error is not None:
                raise error from None

    def _run(self) -> None:
        with np.errstate(all="ignore"):  # as in the thread that runs the program
            while True:
                lane, positions = self._jobs.get()
                try:
                    _work(lane, positions)
                except BaseException as error:  # noqa: BLE001 - raised again in the other thread
                    self._done.put(error)
                else:
                    self._done.put(None)


class _Pool:
    """The helpers of the process, and a scratch memory for each."""

    def __init__(self) -> None:
        count = thread_count() - 1
        self.lock = threading.Lock()
        self.scratch = [Scratch() for _ in range(count)]
        self.helpers = [_Helper(number) for number in range(count)]


@cache
def _pool() -> _Pool:
    return _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
