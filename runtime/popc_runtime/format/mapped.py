"""Files that are mapped stay what they were when their hash was computed, or an error says so."""

from __future__ import annotations

import os
from collections.abc import Callable

from popc_runtime.errors import ResourceError

__all__ = ["Unchanged"]

_HINT = "load the archive again; load(path, copy_weights=True) keeps weights in memory of its own"


class Unchanged:
    """Checks, before each run, that a mapped file is what it was.

    What is cut off ends a process that reads it, so that is looked for first; whether other bytes
    are there now is found out by hashing them, if somebody has written to the file.
    """

    __slots__ = ("_descriptor", "_end", "_path", "_stamp")

    def __init__(self, descriptor: int, path: str, end: int) -> None:
        """``end`` is the last byte that is mapped, plus one."""
        self._descriptor = os.dup(descriptor)
        self._path = path
        self._end = end
        self._stamp = self._now()

    def __call__(self, is_damaged: Callable[[], bool]) -> None:
        """Check the file; ``is_damaged`` hashes what is mapped.

        Raises:
            ResourceError: it was cut off, or has other contents.
        """
        now = self._now()
        if now == self._stamp:
            return
        if now[0] < self._end:
            raise ResourceError(
                f"{self._path} was cut off while its weights were mapped",
                subject=self._path,
                hint=_HINT,
            )
        if is_damaged():
            raise ResourceError(
                f"{self._path} was overwritten while its weights were mapped",
                subject=self._path,
                hint=_HINT,
            )
        self._stamp = now

    def __del__(self) -> None:
        os.close(self._descriptor)

    def _now(self) -> tuple[int, int]:
        """Size and time of the last change, of the file that is mapped, whatever has its name."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns
