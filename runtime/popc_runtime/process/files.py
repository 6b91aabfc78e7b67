"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

from popc_runtime.errors import ResourceError, SpokenHint
from popc_runtime.process.file_lock import hold
from popc_runtime.process.paths import usable_path
from popc_runtime.process.stale import DRAWN, TEMPORARY, remove_stale

__all__ = [
    "new_file",
    "refuse_to_replace",
    "remove_remains",
    "remove_stale",
    "require_room_for",
    "sync_folder",
]


def refuse_to_replace(target: Path, *, force: bool) -> None:
    """Raise ResourceError if ``target`` exists and may not be replaced."""
    try:
        exists = target.exists()
        regular = target.is_file()
    except OSError as error:
        raise _failed(target, error) from error
    if exists and not regular:
        raise ResourceError(f"{target} is not a file that can be replaced", subject=str(target))
    if exists and not force:
        raise ResourceError(
            f"{target} exists already",
            subject=str(target),
            hint=SpokenHint(
                "choose another name, or replace the file with force=True",
                "choose another name, or replace it with --force",
            ),
        )


def require_room_for(target: Path) -> None:
    """Raise ResourceError if no file can be made where ``target`` is to be."""
    temporary = _beside(target)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise _failed(target, error) from error


def remove_remains(target: Path) -> None:
    """Remove what is left of ``target`` where a process was killed while it wrote it."""
    for found in target.parent.glob(f".{escape(target.name)}.*{TEMPORARY}"):
        with suppress(OSError):
            found.unlink()


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``target`` at the end, or vanishes if there is no good end.

    Raises:
        ResourceError: it cannot be written.
        UsageError: ``target`` is no path.
    """
    usable_path(target)
    if not target.name:
        raise ResourceError(f"{target} is not the name of a file", subject=str(target))
    remove_stale(str(target.parent))
    temporary = _beside(target)
    try:
        with _held(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise _failed(target, error) from error
    except MemoryError as error:
        raise ResourceError(f"not enough memory to write {target}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _held(path: Path) -> BinaryIO:
    """A new file that this process has locked.

    Another process may take it for stale before the lock is held; then it is made again.
    """
    while True:
        file = path.open("xb")
        hold(file.fileno())
        if path.exists():
            return file
        file.close()


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.urandom(DRAWN).hex()}{TEMPORARY}")


def sync_folder(folder: Path) -> None:
    """Make the rename survive a power failure, where folders can be synchronised."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _failed(target: Path, error: OSError) -> ResourceError:
    return ResourceError(
        f"cannot write {target}: {error.strerror or error}",
        subject=str(target),
        hint="check that the folder exists, is writable and has room",
    )
