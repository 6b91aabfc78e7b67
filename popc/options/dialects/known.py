"""The dialects that there are, and what tells them apart."""

from __future__ import annotations

from functools import cache
from typing import Final

from popc.options.dialects.dialect import Dialect
from popc.options.dialects.optimum import OPTIMUM
from popc.options.dialects.paddle import PADDLE
from popc.options.dialects.popart import POPART
from popc.options.dialects.tensorflow import TENSORFLOW
from popc.options.options import SCHEMA

__all__ = ["DIALECTS", "dialect_named", "marks_of", "native_names"]

DIALECTS: Final[tuple[Dialect, ...]] = (POPART, TENSORFLOW, OPTIMUM, PADDLE)


def dialect_named(name: str) -> Dialect | None:
    """The dialect of that name; ``None`` if there is none."""
    return next((dialect for dialect in DIALECTS if dialect.name == name), None)


@cache
def native_names() -> frozenset[str]:
    """Names that stand for options of popc wherever they are written: its own and PopART's."""
    ours = {spec.name for spec in SCHEMA} | {spec.name.replace("_", "-") for spec in SCHEMA}
    return frozenset(ours | _names_of(POPART))


@cache
def marks_of(dialect: Dialect) -> frozenset[str]:
    """Names, and first parts of names, that only this dialect has: what recognises it."""
    if dialect.mixes:
        return frozenset()
    others = [other for other in DIALECTS if other is not dialect]
    taken = native_names().union(*(_names_of(other) for other in others))
    return frozenset(_names_of(dialect) - taken)


def _names_of(dialect: Dialect) -> frozenset[str]:
    full = {key.name for key in dialect.keys}
    return frozenset(full | {name.partition(".")[0] for name in full})
