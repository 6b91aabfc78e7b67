"""Functions of the module itself: versions, and names of synchronisation patterns."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from popc.popart.enums import SyncPattern
from popc.popart.errors import popart_exception

__all__ = [
    "VERSION",
    "packageHash",
    "syncPatternFromString",
    "syncPatternToString",
    "versionNumber",
    "versionString",
]

# The version of PopART whose interface this is.
VERSION: Final = "3.4.0"


def versionNumber() -> tuple[int, int, int]:
    """The version of the interface: major, minor, point."""
    major, minor, point = map(int, VERSION.split("."))
    return major, minor, point


def packageHash() -> str:
    """The implementation behind the interface: popc, and its version."""
    return f"popc-{version('popc')}"


def versionString() -> str:
    """The version of the interface, and what stands behind it."""
    return f"{VERSION} ({packageHash()})"


def syncPatternFromString(text: str, /) -> SyncPattern:
    """The pattern of a name.

    Raises:
        popart_exception: there is none of that name.
    """
    for pattern in SyncPattern:
        if str(pattern) == text:
            return pattern
    listed = ", ".join(map(str, SyncPattern))
    raise popart_exception(f"Unknown syncPattern setting: {text}. Supported are {listed}")


def syncPatternToString(pattern: SyncPattern, /) -> str:
    """The name of a pattern."""
    return str(pattern)
