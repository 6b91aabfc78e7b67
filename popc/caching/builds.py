"""Identify this build of popc: development builds share a version and compile differently.

This file imports nothing that takes time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import popc_runtime
from popc_runtime.format.digests import sha256
from popc_runtime.ground.hints import Final

__all__ = ["build_id"]

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SOURCES: Final = (".py", ".toml", ".txt")


@cache
def build_id() -> str:
    """A hash over the sources of popc and its runtime.

    Of installed packages it is made of the hashes that the installer has recorded, of a source
    tree of the sizes and times of its files.
    """
    digest = sha256(size=1 << 16)
    for folder in (_PACKAGE, os.path.dirname(popc_runtime.__file__ or "")):
        for line in _recorded(folder) or sorted(_states(folder, "")):
            digest.update(f"{line}\n".encode())
    found: str = digest.hexdigest()
    return found


def _recorded(folder: str) -> list[str]:
    """The lines of an installed package's RECORD about its sources; empty for a source tree."""
    parent, name = os.path.split(folder)
    prefix = f"{name}-"
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(prefix) and entry.name.endswith(".dist-info"):
                with open(os.path.join(entry.path, "RECORD"), encoding="utf-8") as file:
                    lines = [line.strip() for line in file if line.startswith(f"{name}/")]
                return [line for line in lines if line.partition(",")[0].endswith(_SOURCES)]
    return []


def _states(folder: str, prefix: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SOURCES):
                stat = entry.stat()
                yield f"{prefix}{entry.name} {stat.st_size} {stat.st_mtime_ns}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _states(entry.path, f"{prefix}{entry.name}/")
