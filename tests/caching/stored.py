"""A program, and how tests put it into a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import popc
from popc_runtime.cache import key_of, store_entry
from tests.support.models import affine

__all__ = ["ARCHIVE", "BYTES", "store"]

ARCHIVE: Final = popc.compile(affine())
BYTES: Final = ARCHIVE.to_bytes()


def store(cache: Path, number: int = 0, name: str = "", data: bytes = BYTES) -> str:
    """Store a program under a name, and tell its key, which is that of a number."""
    parts: dict[str, Any] = {"number": number, "model": {"sha256": "a"}, "popc": {"version": "1"}}
    key = key_of(parts)
    names = (name,) if name else ()
    store_entry(str(cache), key, lambda path: path.write_bytes(data), names=names, parts=parts)
    return key
