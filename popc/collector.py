"""Work of Python and numpy on the side, for which a compilation need not wait.

Python's collector of cycles finds little while popc compiles, and costs a tenth.  The threads of
the OpenBLAS inside numpy look for work for a tenth of a second when they start, each of them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["importing", "without_collector"]

# OpenBLAS reads from it when it is loaded how long a thread looks for work until it sleeps: two to
# the power of it, in cycles.  These are 0.3 ms: products that follow each other are as fast.
_PATIENCE: Final = "OPENBLAS_THREAD_TIMEOUT"
_SHORT: Final = "20"


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
    with without_collector(), _soon_asleep():
        yield
        if not gc.get_freeze_count():  # by a caller who means to fork
            gc.freeze()
            gc.unfreeze()


@contextmanager
def _soon_asleep() -> Iterator[None]:
    """Let threads of OpenBLAS sleep soon when they have nothing to do, if it is loaded meanwhile.

    What the user says about it goes first.
    """
    if "numpy" in sys.modules or _PATIENCE in os.environ:
        yield
        return
    os.environ[_PATIENCE] = _SHORT
    try:
        yield
    finally:
        os.environ.pop(_PATIENCE, None)
