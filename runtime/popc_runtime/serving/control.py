"""Loading and unloading, in this process or, by way of their parent, in all workers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, Protocol

from popc_runtime.errors import NotServedError
from popc_runtime.serving.logs import note
from popc_runtime.serving.repository import Repository

__all__ = ["Control", "LocalControl", "WorkerControl", "apply"]


class Control(Protocol):
    """Changes what is served."""

    async def change(self, action: str, name: str) -> None:
        """Load or unload a model, in all workers.

        Raises:
            PopcError: it cannot be loaded in one of them.
        """


def apply(repository: Repository, action: str, name: str) -> None:
    """Load or unload a model in this process.

    Raises:
        PopcError: it cannot be loaded.
    """
    (repository.load if action == "load" else repository.unload)(name)
    note("info", f"model {action}ed", model=name)


class LocalControl:
    """A server of one process."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def change(self, action: str, name: str) -> None:
        """See `Control`."""
        await asyncio.to_thread(apply, self._repository, action, name)


class WorkerControl:
    """A worker's end of the pipe to its parent; a thread listens."""

    def __init__(self, pipe: Connection, repository: Repository, stop: Callable[[], None]) -> None:
        """``stop`` is called when the parent is gone."""
        self._pipe = pipe
        self._repository = repository
        self._stop = stop
        self._sending = threading.Lock()
        self._asked: dict[int, Future[None]] = {}
        self._count = 0
        threading.Thread(target=self._listen, name="popc-serve-control", daemon=True).start()

    def send(self, *message: Any) -> None:
        """Tell the parent something."""
        with self._sending:
            self._pipe.send(message)

    async def change(self, action: str, name: str) -> None:
        """See `Control`."""
        if name not in self._repository.names:
            apply(self._repository, action, name)  # which says so
        future: Future[None] = Future()
        with self._sending:
            self._count += 1
            self._asked[self._count] = future
            self._pipe.send(("ask", self._count, action, name))
        await asyncio.wrap_future(future)

    def _listen(self) -> None:
        while True:
            try:
                kind, number, *rest = self._pipe.recv()
            except (EOFError, OSError):
                self._stop()
                return
            if kind == "answer":
                (error,) = rest
                future = self._asked.pop(number)
                future.set_result(None) if error is None else future.set_exception(error)
            else:
                self.send("done", number, self._applied(*rest))

    def _applied(self, action: str, name: str) -> Exception | None:
        try:
            apply(self._repository, action, name)
        except Exception as error:  # noqa: BLE001 - the one who has asked is told
            note("error", f"model not {action}ed", model=name, error=error)
            return error if hasattr(error, "code") else NotServedError(f"{name}: {error!r}")
        return None
