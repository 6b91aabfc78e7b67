"""Dialects as plain data, for listings."""

from __future__ import annotations

from typing import Any

from popc.options.dialects.dialect import Becomes, Computed, Dialect, Nothing
from popc.options.dialects.known import DIALECTS, dialect_named
from popc.options.suggest import did_you_mean
from popc_runtime.errors import OptionError

__all__ = ["describe_dialect", "dialect_names"]


def dialect_names() -> tuple[str, ...]:
    """The names of all dialects."""
    return tuple(dialect.name for dialect in DIALECTS)


def describe_dialect(name: str) -> list[dict[str, Any]]:
    """The settings of a dialect, each with what becomes of it.

    Raises:
        OptionError: there is no such dialect.
    """
    dialect = dialect_named(name)
    if dialect is None:
        names = dialect_names()
        raise OptionError(
            f"there is no dialect {name!r}",
            subject=name,
            hint=did_you_mean(name, names) or f"there are {', '.join(names)}",
        )
    return _rows(dialect)


def _rows(dialect: Dialect) -> list[dict[str, Any]]:
    return [
        {
            "key": key.name,
            "type": key.kind.word,
            "default": "" if key.default is None else key.kind.plain(key.default),
            "choices": list(key.kind.choices),
            "becomes": key.fate.words,
            "status": _status(key.fate),
        }
        for key in dialect.keys
    ]


def _status(fate: object) -> str:
    if isinstance(fate, Becomes | Computed):
        return "works"
    return "no effect" if isinstance(fate, Nothing) else "refused"
