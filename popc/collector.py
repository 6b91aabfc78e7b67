"""Python's collector of cycles, which finds little while popc compiles, and costs a tenth."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["importing", "without_collector"]


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


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Let the collector rest while ``module`` is imported, and count what is there then as old.

    Imports make much, of which little is ever given back: to look through it takes longer than a
    small model.  What is old is looked through when the collector looks at everything.
    """
    if module in sys.modules:
        yield
        return
    with without_collector():
        yield
        if not gc.get_freeze_count():  # by a caller who means to fork
            gc.freeze()
            gc.unfreeze()
