"""Memory with the alignment that vector instructions and direct views like."""

from __future__ import annotations

import mmap
from typing import Final

from popc_runtime.errors import ResourceError

__all__ = ["aligned_bytes"]

# Memory of this size is mapped in large pages, where the system has them.
_LARGE: Final = 1 << 22
# A forked process has memory of its own.
_PRIVATE: Final = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def aligned_bytes(nbytes: int) -> memoryview:
    """Writable bytes that begin on a page; the system fills them with zeros when they are touched.

    Raises:
        ResourceError: the host has not enough memory.
    """
    try:
        pages = mmap.mmap(-1, max(nbytes, 1), **_PRIVATE)
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
