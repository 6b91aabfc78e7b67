"""The origin of things: contexts that name an operation, and a record of them for tools.

A `DebugContext` names what a call makes; text stands for one everywhere.  While
`initializePoplarDebugInfo` is in force, every `DebugInfo` is recorded; `closePoplarDebugInfo`
writes them to the file.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any, Final

__all__ = [
    "LAYER",
    "DebugContext",
    "DebugInfo",
    "SourceLocation",
    "closePoplarDebugInfo",
    "initializePoplarDebugInfo",
]

LAYER: Final = "popartbuilder"  # of what a builder makes
_PACKAGE: Final = "popc.popart"


class SourceLocation:
    """A place in a program: function, file and line."""

    __slots__ = ("fileName", "functionName", "lineNumber")

    def __init__(self, functionName: str, fileName: str, lineNumber: int) -> None:
        self.functionName = functionName
        self.fileName = fileName
        self.lineNumber = lineNumber


def _caller() -> SourceLocation:
    """The place from which the interface was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


class DebugContext:
    """The name of what a call makes, below that of a parent, and where the call stands.

    Forms: ``()``, ``(name)``, ``(name, loc)``, ``(debugInfo, name)``, ``(debugInfo, name, loc)``.
    """

    __slots__ = ("_loc", "_name", "_parent")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = ("debugInfo", "name", "loc")
        given = args if args and isinstance(args[0], DebugInfo) else (None, *args)
        values = {**dict(zip(names, given, strict=False)), **kwargs}
        parent, name = values.get("debugInfo"), values.get("name", "")
        if not isinstance(name, str) or not isinstance(parent, DebugInfo | None) or len(given) > 3:
            raise TypeError(
                "__init__(): incompatible constructor arguments. The following argument types are "
                "supported:\n    1. (name: str = '', loc: popart.SourceLocation)\n"
                "    2. (debugInfo: popart.DebugInfo, name: str, loc: popart.SourceLocation)"
            )
        self._parent = parent
        self._name = name
        self._loc: SourceLocation | None = values.get("loc")

    @property
    def name(self) -> str:
        """The name alone."""
        return self._name

    @property
    def parent(self) -> DebugInfo | None:
        """The information that this context lies below."""
        return self._parent

    @property
    def location(self) -> SourceLocation:
        """The place of the call."""
        return self._loc or _caller()

    def getPathName(self) -> str:
        """The names of the parents and this one, joined by "/"."""
        above = "" if self._parent is None else self._parent.getPathName()
        return f"{above}/{self._name}" if above else self._name

    def __repr__(self) -> str:
        return repr(self.getPathName())


class DebugInfo:
    """The facts about something that was made: values by name, under an id of its own."""

    __slots__ = ("_context", "_id", "_layer", "_values")

    def __init__(self, debugContext: DebugContext | str, layer: str) -> None:
        context = DebugContext(debugContext) if isinstance(debugContext, str) else debugContext
        self._context = context
        self._layer = layer
        self._id = next(_IDS)
        self._values: dict[str, object] = {}
        if _RECORDS:
            _RECORDS[-1].add(self, context, layer)

    def setValue(self, name: str, value: object) -> bool:
        """Note a value; whether it is kept."""
        self._values[name] = value
        return bool(_RECORDS)

    @property
    def is_recorded(self) -> bool:
        """True if anybody is going to see the values."""
        return bool(_RECORDS)

    def getId(self) -> int:
        """The id, unique in this process."""
        return self._id

    def getPathName(self) -> str:
        """The path name of the context."""
        return self._context.getPathName()

    @property
    def values(self) -> dict[str, object]:
        """The values that were noted."""
        return self._values


class _Record:
    """Contexts until they are written: texts are numbered, contexts refer to the numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: list[tuple[DebugInfo, DebugContext, str, SourceLocation]] = []
        self._texts: dict[str, int] = {}

    def add(self, info: DebugInfo, context: DebugContext, layer: str) -> None:
        self._found.append((info, context, layer, context.location))

    def write(self) -> None:
        contexts = [self._entry(*context) for context in self._found]
        content = {"contexts": contexts, "stringTable": list(self._texts)}
        self.path.write_text(json.dumps(content), encoding="utf-8")

    def _entry(
        self, info: DebugInfo, context: DebugContext, layer: str, place: SourceLocation
    ) -> dict[str, object]:
        entry: dict[str, object] = {
            "id": info.getId(),
            "layer": layer,
            "name": self._text(context.name),
            "location": {
                "fileName": self._text(place.fileName),
                "functionName": self._text(place.functionName),
                "lineNumber": place.lineNumber,
            },
            **info.values,
        }
        if context.parent is not None:
            entry["parentId"] = context.parent.getId()
        return entry

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


_IDS: Final = itertools.count(1)
_RECORDS: Final[list[_Record]] = []


def initializePoplarDebugInfo(filename: str, format: str = "json") -> None:  # noqa: A002
    """Begin to record what is made, for a file that `closePoplarDebugInfo` writes.

    Args:
        filename: The file; it is made when recording ends.
        format: "json"; "cbor" is refused, anything else means JSON, as in PopART.

    Raises:
        popart_exception: the format is CBOR.
    """
    from popc.popart.errors import popart_exception

    if format == "cbor":
        raise popart_exception("Debug information can be written as JSON only, not as CBOR.")
    _RECORDS[:] = [_Record(Path(filename))]


def closePoplarDebugInfo() -> None:
    """Write what has been recorded, and end recording."""
    while _RECORDS:
        _RECORDS.pop().write()
