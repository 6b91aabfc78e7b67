"""Names of `typing` that annotations use, for modules that every process imports.

Loading `typing` takes a tenth of the time that a process needs for a small program.  To type
checkers these are its names; when a program runs they stand for nothing: annotations are text, and
nobody evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import (
        Any,
        ClassVar,
        Final,
        Generic,
        NoReturn,
        Protocol,
        Self,
        TypeAlias,
        TypeVar,
        dataclass_transform,
        overload,
    )
else:
    Any = ClassVar = Final = NoReturn = Self = TypeAlias = None

    class Generic:
        """A class with parameters, whatever these are."""

        def __class_getitem__(cls, parameters: object) -> type:
            """The class."""
            del parameters
            return cls

    class Protocol(Generic):
        """A stand-in for `typing.Protocol`, which only type checkers look at."""

    def TypeVar(name: str, **_: object) -> str:  # noqa: N802
        """A name."""
        return name

    def dataclass_transform(**_: object) -> Callable[[object], object]:
        """A decorator that changes nothing."""
        return overload

    def overload(function: object) -> object:
        """The decorated object, unchanged."""
        return function


__all__ = [
    "TYPE_CHECKING",
    "Any",
    "ClassVar",
    "Final",
    "Generic",
    "NoReturn",
    "Protocol",
    "Self",
    "TypeAlias",
    "TypeVar",
    "dataclass_transform",
    "overload",
]
