"""Settings of a dialect as attributes of an object, checked when they are set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from popc.options.dialects.dialect import Dialect, HostKey

__all__ = ["HostSettings", "SettingsNode"]

_INNER: Final = frozenset({"_dialect", "_prefix", "_values"})


class SettingsNode:
    """The settings below a dotted name.

    Categories are nodes themselves; a family of names (``poplar_options``) is a dict.
    """

    def __init__(self, dialect: Dialect, prefix: str, values: dict[str, Any]) -> None:
        """``values`` are those that have been set, by full name; nodes of a tree share them."""
        self._dialect = dialect
        self._prefix = prefix
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = self._prefix + name
        key = self._row(name)
        if key is not None:
            return self._values.get(full, key.default)
        if f"{full}." in self._dialect.families:
            return self._values.setdefault(full, {})
        if self._dialect.has_below(full):
            return SettingsNode(self._dialect, f"{full}.", self._values)
        raise AttributeError(self._unknown(full))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _INNER:
            super().__setattr__(name, value)
            return
        full = self._prefix + name
        key = self._row(name)
        if key is not None:
            self._values[full] = self.checked(key, value)
            return
        if f"{full}." not in self._dialect.families:
            raise AttributeError(self._unknown(full))
        if not isinstance(value, Mapping):
            raise TypeError(f"{full} is {value!r}, but must be a dict")
        for inner, item in value.items():
            row = self._dialect.find(f"{full}.{inner}")
            assert row is not None, "a family has a row for any name"
            self.checked(row, item)
        self._values[full] = dict(value)

    def __dir__(self) -> list[str]:
        below = [
            key.name.removeprefix(self._prefix).partition(".")[0]
            for key in self._dialect.keys
            if key.name.startswith(self._prefix)
        ]
        return sorted({*super().__dir__(), *below} - {"*"})

    def _row(self, name: str) -> HostKey | None:
        return self._dialect.by_name.get(self._prefix + name)

    @staticmethod
    def checked(key: HostKey, value: Any) -> Any:
        """``value``, if the setting takes it.

        Raises:
            TypeError: it does not.
        """
        try:
            key.kind.parse(value)
        except ValueError as error:
            raise TypeError(f"{key.name} {error}") from None
        return value

    def _unknown(self, full: str) -> str:
        advice = self._dialect.advice(full)
        return f"{self._dialect.title} has no {full!r}" + (f": {advice}" if advice else "")


class HostSettings(SettingsNode, Mapping[str, object]):
    """All settings of a dialect, and a mapping of those that have been set, for `popc.compile`."""

    def __init__(self, dialect: Dialect) -> None:
        SettingsNode.__init__(self, dialect, "", {})

    def _given(self) -> dict[str, object]:
        given = {name: value for name, value in self._values.items() if value != {}}
        return {"dialect": self._dialect.name, **given}

    def __getitem__(self, name: str) -> object:
        return self._given()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given())

    def __len__(self) -> int:
        return len(self._given())

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({said})"
