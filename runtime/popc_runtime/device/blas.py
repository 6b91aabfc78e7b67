"""Keep the BLAS library inside numpy from running threads of its own while a program runs.

Why?  OpenBLAS splits a product over threads that wait for each other by spinning.  When any other
process or thread wants a core, a product of 0.05 ms takes 20 ms.  One thread per product is nearly
as fast on the sizes that occur here, and always predictable; kernels that gain from two cores
split their work themselves (`popc_runtime.kernels.core.parallel`).

The number of threads is a setting of the process: it is changed when a program starts and restored
when the last one ends.  Where numpy uses another BLAS, nothing is changed.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

__all__ = ["settings_of_numpy"]

# numpy's own wheels, then builds against a system OpenBLAS.
_SUFFIXES: Final = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)

_lock = threading.RLock()  # a signal's handler may fork while its thread has it
_users = 0  # who hold BLAS to one thread at the moment
_threads_before = 0  # what the last of them sets again


class _OfThread(threading.local):
    """The number of times that a thread is inside of `settings_of_numpy`."""

    users = 0


_of_thread = _OfThread()


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """OpenBLAS' functions to read and set the number of threads, if numpy uses OpenBLAS."""
    folder = Path(np.__file__).parent
    candidates = [*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]
    for path in sorted(candidates):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in _SUFFIXES:
            if hasattr(library, name.format("set")) and hasattr(library, name.format("get")):
                return library[name.format("get")], library[name.format("set")]
    return None


@contextmanager
def settings_of_numpy() -> Iterator[None]:
    """One BLAS thread, and IEEE results, which are the ONNX results, without warnings."""
    with _single_threaded_blas(), np.errstate(all="ignore"):
        yield


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    """One BLAS thread for the duration; may be nested and used from several threads."""
    functions = _functions()
    if functions is None:
        yield
        return
    read, write = functions
    global _users, _threads_before  # noqa: PLW0603 - the setting belongs to the process
    with _lock:
        if _users == 0:
            _threads_before = int(read())
            write(1)
        _users += 1
        _of_thread.users += 1
    try:
        yield
    finally:
        with _lock:
            _of_thread.users -= 1
            _users -= 1
            if _users == 0:
                write(_threads_before)


def _forget_threads() -> None:
    """In a forked child, of its parent's threads only the one that has forked goes on."""
    global _users  # noqa: PLW0603 - as above
    others = _users - _of_thread.users
    _users -= others
    if others and _users == 0 and (functions := _functions()) is not None:
        functions[1](_threads_before)
    _lock.release()


if hasattr(os, "register_at_fork"):
    # A fork waits for the lock, so that the child never finds a number half changed.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_threads
    )
