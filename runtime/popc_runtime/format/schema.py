"""A hash over the definition of the format.

The version says what readers may expect.  Between releases the definition changes more often than
the version; the hash then tells two builds apart that would misread each other's archives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from popc_runtime.format.digests import sha256
from popc_runtime.ground.frozen import field_types

__all__ = ["definition_hash"]


def definition_hash(kinds: Iterable[type], names: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, of the members of enumerations and frozen classes, and ``names``."""
    lines = [line for kind in kinds for line in _lines(kind)]
    return sha256("\n".join([*lines, *names]).encode()).hexdigest()  # type: ignore[no-any-return]


def _lines(kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield from (f"{kind.__name__}.{member.name} = {member.value!r}" for member in kind)
    else:
        yield from (f"{kind.__name__}.{name}: {text}" for name, text in field_types(kind).items())
