"""Results of calls in the background, for threads and for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from typing import Any

__all__ = ["AwaitableFuture", "submit"]


class AwaitableFuture(Future[Any]):
    """A future that can be awaited, in whatever event loop the coroutine runs."""

    def __await__(self) -> Generator[Any, None, Any]:
        from asyncio import wrap_future  # slow to import; whoever awaits has done it

        return wrap_future(self).__await__()


def submit(worker: Executor, call: Callable[..., Any], args: tuple[object, ...]) -> AwaitableFuture:
    """The future of ``call(*args)``, which ``worker`` makes unless it is cancelled before."""
    future = AwaitableFuture()
    worker.submit(_fill, future, call, args)
    return future


def _fill(future: AwaitableFuture, call: Callable[..., Any], args: tuple[object, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call(*args)
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise
    else:
        future.set_result(result)
