"""The folder in which the processes of a server keep the numbers for its metrics."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from popc_runtime.process.file_lock import hold, is_free
from popc_runtime.serving.metrics import DIRECTORY

__all__ = ["forget_gauges", "numbers_folder", "numbers_held"]

_PREFIX: Final = "popc-serve-"
_LOCK: Final = ".lock"


@contextmanager
def numbers_folder() -> Iterator[None]:
    """A folder for the metrics of all workers during the block.

    Folders of servers that were killed are removed first: nobody else could do that.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    before = os.environ.get(DIRECTORY)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        os.environ[DIRECTORY] = folder
        try:
            with numbers_held():
                yield
        finally:
            if before is None:
                del os.environ[DIRECTORY]
            else:
                os.environ[DIRECTORY] = before


@contextmanager
def numbers_held() -> Iterator[None]:
    """Keep other servers from removing the folder during the block, or until this process ends."""
    folder = Path(os.environ[DIRECTORY])
    new = folder / f"{os.getpid()}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        hold(descriptor)
        kept = new.rename(folder / f"{os.getpid()}{_LOCK}")  # held before anybody sees it
        yield
        with suppress(OSError):
            kept.unlink()
    finally:
        os.close(descriptor)


def forget_gauges(pid: int | None) -> None:
    """Count no more what a worker was doing that is gone; what it has done stays."""
    for path in Path(os.environ[DIRECTORY]).glob(f"gauge_live*_{pid}.db"):
        path.unlink()


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user's servers of which no process is left."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                if (
                    entry.name.startswith(_PREFIX)
                    and entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                    and _is_abandoned(Path(entry.path))
                ):
                    shutil.rmtree(entry.path)


def _is_abandoned(folder: Path) -> bool:
    locks = [*folder.glob(f"*{_LOCK}")]
    return bool(locks) and all(is_free(str(each)) for each in locks)
