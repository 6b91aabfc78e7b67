"""Share the work of one instruction among threads.

`parallel_calls` takes the work in chunks whose boundaries depend on shapes only, so that results
do not depend on the number of threads.  The thread that runs the program wakes the helpers and
takes chunks itself until none is left; it then waits only for chunks that a helper has begun.  A
helper that the operating system does not start in time costs nothing.

When does it pay?  numpy lets other threads run during a call, but between calls only one thread
runs at a time, and handing that right over costs 10 microseconds or more.  Waking a helper costs
up to 80.  So: chunks of 100 microseconds and more, made of few calls.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.kernels.core.binding import Call, Scratch

__all__ = ["parallel_calls", "together"]

Chunk: TypeAlias = "tuple[Call, ...]"

# What a thread causes itself, and the clock of profilers.
_OPEN_SIGNALS: Final = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGPROF")
    if hasattr(signal, name)
)


def parallel_calls(
    scratch: Scratch, chunks: Sequence[Callable[[], Iterable[Call]]]
) -> tuple[Call, ...]:
    """The calls that do ``chunks``, on as many threads as ``scratch`` says.

    Each element of ``chunks`` is called once, here, and returns the calls of one chunk.  What it
    takes from ``scratch`` overlaps that of other chunks only where they run one after another.
    Chunks may run in any order and at the same time.
    """
    mark = scratch.mark()
    alone = scratch.threads == 1 or len(chunks) < 2
    built: list[Chunk] = []
    for build in chunks:
        if alone:
            scratch.rewind(mark)
        else:
            scratch.skip()
        built.append(tuple(build()))
    if alone:
        return tuple(call for chunk in built for call in chunk)
    return (partial(_run_shared, tuple(built), min(scratch.threads, len(built)) - 1),)


def together(calls: Sequence[Call], threads: int) -> Call:
    """A call that makes ``calls``, which do not touch each other's memory, on several threads."""
    chunks: tuple[Chunk, ...] = tuple((call,) for call in calls)
    return partial(_run_shared, chunks, min(threads, len(chunks)) - 1)


def _run_shared(chunks: tuple[Chunk, ...], helpers: int) -> None:
    task = _Task(chunks)
    _pool.wake(task, helpers)
    task.work()
    task.finish()


class _Task:
    """One run of some chunks; whoever calls `work` takes chunks until none is left."""

    __slots__ = ("_ended", "_error", "_last", "_over", "_remaining")

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        self._remaining = iter(chunks)  # taking the next element is atomic, as is counting
        self._ended = count(1)
        self._last = len(chunks)
        self._over = threading.Lock()
        self._over.acquire()
        self._error: BaseException | None = None

    def work(self) -> None:
        """Take chunks until none is left; errors are kept for `finish`."""
        for chunk in self._remaining:
            try:
                for call in chunk:
                    call()
            except BaseException as error:  # noqa: BLE001 - raised again by `finish`
                self._error = error
            if next(self._ended) == self._last:
                self._over.release()

    def finish(self) -> None:
        """Wait for the chunks that other threads have taken.

        Raises:
            BaseException: what a chunk raised.
        """
        self._over.acquire()
        if self._error is not None:
            raise self._error


class _Helper(threading.Thread):
    """A thread that sleeps until it is woken for a task."""

    def __init__(self, number: int) -> None:
        super().__init__(name=f"popc-helper-{number}", daemon=True)
        self._task: _Task | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self, task: _Task) -> None:
        """Offer a task.  A helper that is busy with another may find it finished."""
        self._task = task
        try:
            self._asleep.release()
        except RuntimeError:  # woken already
            return

    def run(self) -> None:
        """Work on what is offered, for ever."""
        np.seterr(all="ignore")  # as the engine does in the thread that runs the program
        _block_signals()
        while True:
            self._asleep.acquire()
            task, self._task = self._task, None
            if task is not None:
                task.work()
                del task  # its buffers may belong to a program that is closed meanwhile


def _block_signals() -> None:
    """Leave signals to the program's own threads, as the helpers of native kernels do.

    One that they block later, to wait for it, would come here and end the process.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OPEN_SIGNALS)


class _Pool:
    """The helpers of this process; they start when first needed."""

    def __init__(self) -> None:
        self._helpers: list[_Helper] = []
        self._growing = threading.Lock()

    def wake(self, task: _Task, helpers: int) -> None:
        """Offer ``task`` to a number of helpers."""
        if len(self._helpers) < helpers:
            self._grow(helpers)
        for helper in self._helpers[:helpers]:
            helper.wake(task)

    def _grow(self, size: int) -> None:
        with self._growing:
            while len(self._helpers) < size:
                helper = _Helper(len(self._helpers) + 1)
                helper.start()
                self._helpers.append(helper)

    def forget(self) -> None:
        """Start again: a forked child has none of its parent's threads."""
        self._helpers = []
        self._growing = threading.Lock()


_pool: Final = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)
