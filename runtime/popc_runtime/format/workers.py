"""Work on other threads: one call, or a function of many items.

The pools of `concurrent.futures` take longer to import than a small archive takes to decompress.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from popc_runtime.ground.hints import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from _queue import SimpleQueue

__all__ = ["begin_call", "ordered_map"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def begin_call(function: Callable[[_In], _Out], item: _In) -> Callable[[], _Out]:
    """Begin a call on another thread; what is returned waits for its end, and gives the result.

    Where the system gives no thread, the call is made then.
    """
    task = _Task(function, item)
    begun = allocate_lock()
    begun.acquire()

    def work() -> None:
        begun.release()
        task.run()

    with suppress(RuntimeError):
        start_new_thread(work, ())
        begun.acquire()  # otherwise it would wait until this thread has used up its turn
    return task.result


def ordered_map(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int
) -> Iterator[_Out]:
    """``map`` on several threads: results in order, few items taken ahead of them.

    One of the threads is the caller's, which also takes the items: where the system gives fewer
    threads than are asked for, the work takes longer, and that is all.
    """
    if threads <= 1:
        yield from map(function, items)
        return
    from _queue import SimpleQueue

    waiting: SimpleQueue[_Task[_In, _Out] | None] = SimpleQueue()
    pending: deque[_Task[_In, _Out]] = deque()
    started = 0
    try:
        with suppress(RuntimeError):
            while started < threads - 1:
                start_new_thread(_work, (waiting,))
                started += 1
        for item in items:
            pending.append(_Task(function, item))
            waiting.put(pending[-1])
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for task in pending:
            task.finish()
        for _ in range(started):
            waiting.put(None)


def _work(waiting: SimpleQueue[_Task[_In, _Out] | None]) -> None:
    while (task := waiting.get()) is not None:
        task.run()


class _Task(Generic[_In, _Out]):
    """One call, made by whoever comes first."""

    def __init__(self, function: Callable[[_In], _Out], item: _In) -> None:
        self._function = function
        self._item = item
        self._taken = allocate_lock()
        self._running = allocate_lock()
        self._running.acquire()
        self._found: list[_Out] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call, unless somebody has begun to."""
        if not self._taken.acquire(blocking=False):
            return
        try:
            self._found.append(self._function(self._item))
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            self._error = error
        del self._item  # a thread may hold the task for longer than who waits for it
        self._running.release()

    def result(self) -> _Out:
        """The result of the call, or the error that it raised."""
        self.run()
        with self._running:
            pass  # somebody has made it
        if self._error is not None:
            raise self._error
        return self._found[0]

    def finish(self) -> None:
        """Wait for the call if it is being made, and see to it that nobody begins to."""
        if not self._taken.acquire(blocking=False):
            self._running.acquire()
