"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, Final

from popc_runtime.errors import ResourceError, SpokenHint

__all__ = ["new_file", "refuse_to_replace", "remove_remains", "require_room_for", "sync_folder"]

_TEMPORARY: Final = ".tmp"


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
    for found in target.parent.glob(f".{escape(target.name)}.*{_TEMPORARY}"):
        with suppress(OSError):
            found.unlink()


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``target`` at the end, or vanishes if there is no good end.

    Raises:
        ResourceError: it cannot be written.
    """
    temporary = _beside(target)
    try:
        with temporary.open("xb") as file:
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


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}{_TEMPORARY}")


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
