"""Ctrl-C at a moment that suits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait until the block has ended well; a second one does not wait.

    In other threads than the main one, where Ctrl-C never arrives, this does nothing; nor where the
    signal is ignored.  The block is given a function that tells whether Ctrl-C waits.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    waiting: list[FrameType | None] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if waiting:
            before(number, frame)
        waiting.append(frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: bool(waiting)
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        before(signal.SIGINT, waiting[0])
