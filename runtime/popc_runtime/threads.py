"""How many threads a program runs on unless the caller says otherwise."""

from __future__ import annotations

import os
from functools import cache

from popc_runtime.errors import UsageError
from popc_runtime.hints import Final

__all__ = ["thread_count"]

_VARIABLE: Final = "POPC_NUM_THREADS"


@cache
def thread_count() -> int:
    """``POPC_NUM_THREADS``, or the processors that this process may use.

    Raises:
        UsageError: the variable is not a positive number.
    """
    wanted = os.environ.get(_VARIABLE, "")
    if not wanted:
        return _processors()
    if not (wanted.isdecimal() and int(wanted) > 0):
        raise UsageError(f"{_VARIABLE} must be a positive number, not {wanted!r}")
    return int(wanted)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
