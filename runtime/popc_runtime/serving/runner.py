"""The thread that runs one model, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from time import monotonic
from typing import TypeAlias

from popc_runtime.errors import NotServedError, OverloadedError, PopcError, RunTimeoutError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.batching import BatchQueue, QueueEntry
from popc_runtime.serving.models import ServedModel

__all__ = ["InferAnswer", "Pending", "Runner"]


@frozen
class InferAnswer:
    """The results of a request, and how it came to them; seconds.

    Attributes:
        samples: Of the run, which other requests may have been part of.
    """

    results: dict[str, Array]
    waited: float
    ran: float
    samples: int


# A request that waits: its inputs, and where its answer goes.
Pending: TypeAlias = "QueueEntry[tuple[Mapping[str, Array], Future[InferAnswer]]]"


class Runner:
    """Takes requests from any thread; answers them from a thread of its own."""

    def __init__(
        self,
        model: ServedModel,
        *,
        name: str,
        max_wait: float = 0.0,
        max_queue: int = 256,
        ran: Callable[[int, float], None] = lambda samples, seconds: None,  # noqa: ARG005 - nobody is told
    ) -> None:
        """``ran`` is told the samples of each run, and the seconds that it took."""
        self.model = model
        self._name = name
        self._ran = ran
        limit = 1 if model.batching is None else model.batching.limit
        self._queue: BatchQueue[tuple[Mapping[str, Array], Future[InferAnswer]]] = BatchQueue(
            limit=limit, max_wait=max_wait, max_queue=max_queue
        )
        self._max_queue = max_queue
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"popc-serve-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._queue)

    def submit(self, arrays: Mapping[str, Array], deadline: float = inf) -> Pending:
        """Let a request wait for its turn; its future is ``value[1]``.

        Args:
            arrays: Inputs, as `ServedModel.prepared` gives them.
            deadline: The time of `time.monotonic` after which nobody needs the answer.

        Raises:
            OverloadedError: the queue is full.
            NotServedError: the model has been unloaded.
        """
        batching = self.model.batching
        key, size = (None, 1) if batching is None else batching.group(arrays)
        entry: Pending = QueueEntry(
            (arrays, Future()), key=key, size=size, arrival=monotonic(), deadline=deadline
        )
        with self._changed:
            if self._closed:
                raise NotServedError(f"model {self._name} has been unloaded")
            if not self._queue.offer(entry):
                raise OverloadedError(
                    f"the queue of model {self._name} is full, {self._max_queue:,} wait",
                    hint="try again later; --max-queue lets more of them wait",
                )
            self._changed.notify()
        return entry

    def forget(self, entry: Pending) -> None:
        """Take a request back, if it still waits."""
        with self._changed:
            self._queue.remove(entry)
        entry.value[1].cancel()

    def close(self) -> None:
        """Refuse requests, answer those that wait, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self.model.close()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            live = [entry for entry in batch if entry.value[1].set_running_or_notify_cancel()]
            if live:
                self._answer(live)

    def _next(self) -> list[Pending] | None:
        """The next batch, as soon as it is due; ``None`` at the end."""
        with self._changed:
            while True:
                now = monotonic()
                for entry in self._queue.expired(now):
                    _expire(entry, now)
                batch = self._queue.take(inf if self._closed else now)
                if batch:
                    return batch
                if self._closed:
                    return None
                due = self._queue.due_at()
                self._changed.wait(None if due == inf else max(0.0, due - now))

    def _answer(self, entries: Sequence[Pending]) -> None:
        """Run a batch; if that fails, each request alone, so that it fails for its own fault."""
        try:
            answers = self._run(entries)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request gets an answer
            if len(entries) == 1:
                entries[0].value[1].set_exception(error)
                return
            for entry in entries:
                self._answer([entry])
            return
        for entry, answer in zip(entries, answers, strict=True):
            entry.value[1].set_result(answer)

    def _run(self, entries: Sequence[Pending]) -> list[InferAnswer]:
        start = monotonic()
        last = max(entry.deadline for entry in entries)  # nobody is stopped for another's haste
        if last <= start:
            raise _too_late()
        timeout = None if last == inf else last - start
        inputs = [entry.value[0] for entry in entries]
        sizes = [entry.size for entry in entries]
        batching = self.model.batching
        if batching is None or len(entries) == 1:
            parts = [self.model.run(inputs[0], timeout)]
        else:
            parts = batching.parted(self.model.run(batching.joined(inputs), timeout), sizes)
        seconds = monotonic() - start
        self._ran(sum(sizes), seconds)
        return [
            InferAnswer(part, start - entry.arrival, seconds, sum(sizes))
            for part, entry in zip(parts, entries, strict=True)
        ]


def _expire(entry: Pending, now: float) -> None:
    if entry.value[1].set_running_or_notify_cancel():
        entry.value[1].set_exception(_too_late(now - entry.arrival))


def _too_late(waited: float = 0.0) -> PopcError:
    return RunTimeoutError(
        f"the request waited {waited:.3g} s for its turn, longer than its time-out"
        if waited
        else "the time-out of the request passed before its turn",
        hint="allow more time, or send fewer requests at once",
    )
