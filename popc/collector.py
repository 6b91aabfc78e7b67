"""Python's collector of cycles, which finds little while popc compiles, and costs a tenth."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collector"]


@contextmanager
def without_collector() -> Iterator[None]:
    """Let the collector rest: graphs are full of cycles, and live until they are no longer needed.

    It goes on as before afterwards, if it was at work.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
