"""Paths that a caller gives; without pathlib, which takes longer to import than a small program."""

from __future__ import annotations

import errno
import os
import stat

from popc_runtime.errors import UsageError

__all__ = ["is_url", "opened_at_once", "read_regular", "usable_path"]


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


def read_regular(path: str, most: int) -> bytes:
    """The content of a file that others may have put there.

    Raises:
        OSError: it is a device or a pipe, has more than ``most`` bytes, or cannot be read.
    """
    with open(path, "rb", opener=opened_at_once) as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return data
