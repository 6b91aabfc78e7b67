"""Paths that a caller gives; without pathlib, which takes longer to import than a small program."""

from __future__ import annotations

import errno
import os
import stat

from popc_runtime.errors import UsageError
from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

__all__ = ["is_url", "open_regular", "opened_at_once", "read_regular", "usable_path"]


def usable_path(path: str | os.PathLike[str]) -> str:
    """``path`` as text that a file system takes.

    Raises:
        UsageError: it is empty, or holds a NUL or characters that the system's encoding lacks.
    """
    text = os.fspath(path)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        encoded = b"\0"
    if not encoded or b"\0" in encoded:
        raise UsageError(f"{text!r:.80} is not the path of a file")
    return text


def is_url(path: object) -> bool:
    """True if a path names a file system as well: ``s3://...``, ``file://...``."""
    if not isinstance(path, str):
        return False
    scheme, found, _ = path.partition("://")
    return bool(found) and scheme[:1].isalpha() and all(c.isalnum() or c in "+.-:" for c in scheme)


def opened_at_once(path: str, flags: int) -> int:
    """See `os.open`; pipes are not waited for, which may be for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A file that others may have put there, opened for reading.

    Raises:
        OSError: it is a device or a pipe, which may have no end, or cannot be opened.
    """
    file = open(path, "rb", opener=opened_at_once)  # noqa: SIM115 - whoever asks closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    return file


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a file that others may have put there.

    Raises:
        OSError: see `open_regular`; or it has more than ``most`` bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, most) + 1)  # memory for as many bytes is taken at once
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return data
