"""Memory with the alignment that vector instructions and direct views like."""

from __future__ import annotations

import mmap

from popc_runtime.errors import ResourceError
from popc_runtime.ground.hints import Final

__all__ = ["aligned_bytes"]

# Memory of this size is mapped in large pages, where the system has them.
_LARGE: Final = 1 << 22
# A forked process has memory of its own.
_PRIVATE: Final = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_AT_ONCE: Final = getattr(mmap, "MAP_POPULATE", 0)


def aligned_bytes(nbytes: int, *, at_once: bool = False) -> memoryview:
    """Writable bytes that begin on a page, filled with zeros.

    The system provides each page when it is touched; or all ``at_once``, if all are going to be.

    Raises:
        ResourceError: the host has not enough memory.
    """
    try:
        flags = _PRIVATE | (_AT_ONCE if at_once and nbytes < _LARGE else 0)
        how = {"flags": flags} if flags else {}
        pages = mmap.mmap(-1, max(nbytes, 1), **how)
    except (OSError, OverflowError, MemoryError) as error:
        raise ResourceError(f"not enough memory for {nbytes:,} bytes") from error
    if nbytes >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        _advise(pages, mmap.MADV_HUGEPAGE)
    return memoryview(pages)[:nbytes]


def _advise(pages: mmap.mmap, advice: int) -> None:
    try:
        pages.madvise(advice)
    except OSError:  # a system without large pages
        return
