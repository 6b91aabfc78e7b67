"""Objects with named settings whose values are converted, or refused, when they are assigned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Self

from popc.popart.calls import INT, STR, Kind, Mismatch
from popc.popart.enums import NativeEnum
from popc_runtime.ground.frozen import frozen

__all__ = ["UINT", "Field", "LiveDict", "Record", "dict_of", "set_of"]


_FIXED: Final = (int, float, str, NativeEnum)


def _uint(value: object) -> int:
    number: int = INT.convert(value)
    if number < 0:
        raise Mismatch
    return number


UINT = Kind("int", _uint)


class LiveDict(dict[str, Any]):
    """A dict from text whose values are of one kind, however they are put in."""

    def __init__(self, kind: Kind, items: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._kind = kind
        self.update(items or {})

    def __setitem__(self, key: str, value: object) -> None:
        try:
            super().__setitem__(STR.convert(key), self._kind.convert(value))
        except Mismatch:
            raise TypeError(
                f"incompatible types: {key!r} must be str and {value!r} must be {self._kind.name}"
            ) from None

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Like the method of a dict."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Like the method of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # all of it is checked
        self.update(other)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LiveDict:
        return LiveDict(self._kind, copy.deepcopy(dict(self), memo))


def dict_of(kind: Kind) -> Kind:
    """A dict from text to ``kind``."""

    def convert(value: object) -> LiveDict:
        if not isinstance(value, dict):
            raise Mismatch
        try:
            return LiveDict(kind, value)
        except TypeError as error:
            raise Mismatch from error

    return Kind(f"Dict[str, {kind.name}]", convert)


def set_of(kind: Kind) -> Kind:
    """A set of ``kind``."""

    def convert(value: object) -> set[Any]:
        if not isinstance(value, set):
            raise Mismatch
        return {kind.convert(item) for item in value}

    return Kind(f"Set[{kind.name}]", convert)


@frozen
class Field:
    """A setting: what it takes, and how its default is made."""

    kind: Kind
    default: Callable[[], Any]


class Record:
    """Settings by name.

    Attributes:
        FIELDS: The settings.
    """

    FIELDS: ClassVar[Mapping[str, Field]] = {}
    __slots__ = ("_values",)

    _values: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(
            self, "_values", {n: field.default() for n, field in self.FIELDS.items()}
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_values" or name not in self.FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: object) -> None:
        field = self.FIELDS.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            self._values[name] = field.kind.convert(value)
        except Mismatch:
            raise TypeError(
                f"{name}: incompatible types: {value!r} cannot be converted to {field.kind.name}"
            ) from None

    def assign(self, names: Iterable[str], values: Iterable[object]) -> None:
        """Assign several settings."""
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.FIELDS})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        values = {
            # Nearly all are numbers, words or enums, which are not worth the way through `copy`.
            name: value if isinstance(value, _FIXED) else copy.deepcopy(value, memo)
            for name, value in self._values.items()
        }
        object.__setattr__(made, "_values", values)
        return made

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults; a record within counts if any does."""
        found: dict[str, Any] = {}
        for name, field in self.FIELDS.items():
            value = self._values[name]
            differs = bool(value.changed()) if isinstance(value, Record) else None
            if differs if differs is not None else value != field.default():
                found[name] = value
        return found
