"""Remains of files whose writers were killed."""

from __future__ import annotations

import os
from contextlib import suppress

from popc_runtime.ground.hints import Final
from popc_runtime.process.file_lock import is_free

__all__ = ["DRAWN", "TEMPORARY", "remove_stale"]

TEMPORARY: Final = ".tmp"  # how the names of files end that are not complete
DRAWN: Final = 8  # bytes of the part of a name that is drawn by lot


def remove_stale(folder: str) -> None:
    """Remove what processes that were killed while they wrote files have left in a folder.

    Whoever writes a file holds a lock on what is to become it, so that what nobody holds is stale.
    """
    with suppress(OSError):
        for name in os.listdir(folder or "."):
            if name.endswith(TEMPORARY) and _is_temporary(name):
                path = os.path.join(folder, name)
                with suppress(OSError):
                    if is_free(path):
                        os.unlink(path)


def _is_temporary(name: str) -> bool:
    """True if `new_file` may have made a file of this name."""
    drawn = name[: -len(TEMPORARY)].rpartition(".")[2]
    letters = set("0123456789abcdef")
    return name.startswith(".") and len(drawn) == 2 * DRAWN and letters.issuperset(drawn)
