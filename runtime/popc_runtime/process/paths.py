"""Paths that a caller gives; without pathlib, which takes longer to import than a small program."""

from __future__ import annotations

import os

from popc_runtime.errors import UsageError

__all__ = ["is_url", "usable_path"]


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
