"""Samples read ahead of the program."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import cast

import numpy as np

from popc_runtime.data.streams.sources import Source
from popc_runtime.format import Array

__all__ = ["prefetch"]


def prefetch(source: Source, depth: int) -> Source:
    """``source``, read by a thread up to ``depth`` samples ahead; depth 0 reads on demand."""
    return _PrefetchSource(source, depth) if depth > 0 else source


class _PrefetchSource:
    """Takes samples from another source in a thread.

    The order of samples is that of the source.  Never are more than ``depth`` samples taken that
    the program has not asked for.  What the source raises is raised where the sample would have
    been; a source that has nothing yet is asked again, by the program, when that needs the sample.
    Samples are copied: a source may use one array again and again.
    """

    def __init__(self, source: Source, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._ready: deque[Array | BaseException] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._has_nothing = False
        ahead = getattr(source, "ahead", None)
        self._take = cast("Callable[[], Array | None]", ahead or source.next)
        self._thread = threading.Thread(target=self._fill, daemon=True, name="popc-prefetch")
        self._thread.start()

    def _fill(self) -> None:
        while self._wait_for_room():
            item: Array | BaseException | None
            try:
                sample = self._take()
                item = None if sample is None else np.array(sample)
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                item = error
            with self._changed:
                if item is None:
                    self._has_nothing = True
                else:
                    self._ready.append(item)
                self._changed.notify_all()
            if isinstance(item, BaseException):
                return

    def _wait_for_room(self) -> bool:
        """Wait until a sample is wanted; false if no more ever will be."""
        with self._changed:
            self._changed.wait_for(self._is_wanted)
            return not self._stopped

    def _is_wanted(self) -> bool:
        return self._stopped or (len(self._ready) < self._depth and not self._has_nothing)

    def next(self) -> Array:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._has_nothing)
            if not self._ready:
                return self._on_demand()
            item = self._ready[0]
            if isinstance(item, BaseException):
                raise item
            self._ready.popleft()
            self._changed.notify_all()
            return item

    def _on_demand(self) -> Array:
        """The thread waits meanwhile."""
        sample = self._source.next()
        self._has_nothing = False
        self._changed.notify_all()
        return sample

    def close(self) -> None:
        """End the thread.  A source that does not return is left alone with it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout=1)
        if not self._thread.is_alive():
            self._source.close()
