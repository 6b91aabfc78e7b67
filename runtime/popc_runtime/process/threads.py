"""The number of threads that a program runs on."""

from __future__ import annotations

import os
from functools import cache

from popc_runtime.errors import UsageError
from popc_runtime.ground.hints import Final

__all__ = ["MOST_THREADS", "chosen_threads", "thread_count"]

_VARIABLE: Final = "POPC_NUM_THREADS"
# More than any machine has: who asks for more has mistaken the unit.  Kernels count them in ints.
MOST_THREADS: Final = 1 << 16


def chosen_threads(threads: int | None) -> int:
    """``threads``, by default `thread_count`.

    Raises:
        UsageError: it is not a positive number, or too large.
    """
    if threads is None:
        return thread_count()
    if not hasattr(threads, "__index__"):
        raise UsageError(f"threads must be a number, not {threads!r}", hint=_advice())
    if threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads:,}")
    if threads > MOST_THREADS:
        raise UsageError(
            f"threads must be at most {MOST_THREADS:,}, not {threads:,}", hint=_advice()
        )
    return int(threads)


@cache
def thread_count() -> int:
    """``POPC_NUM_THREADS``, or the processors that this process may use.

    Raises:
        UsageError: the variable is not a positive number, or too large.
    """
    wanted = os.environ.get(_VARIABLE, "")
    if not wanted:
        return _processors()
    number = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0
    if not 0 < number <= MOST_THREADS:
        raise UsageError(
            f"{_VARIABLE} must be a positive number, {MOST_THREADS:,} at most, not {wanted!r:.40}",
            hint=_advice(),
        )
    return number


def _advice() -> str:
    return f"this process may use {_processors():,} processors; more threads gain nothing"


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
