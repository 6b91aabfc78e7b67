"""Kinds of values: each reads what a user writes, and says what is wrong with it."""

from popc.options.kinds.kind import Kind
from popc.options.kinds.lists import Known, Names, Patterns, Several, require_known
from popc.options.kinds.scalars import Choice, Number, PathName, Text, Truth, Whole
from popc.options.kinds.tables import Table, parse_entries

__all__ = [
    "Choice",
    "Kind",
    "Known",
    "Names",
    "Number",
    "PathName",
    "Patterns",
    "Several",
    "Table",
    "Text",
    "Truth",
    "Whole",
    "parse_entries",
    "require_known",
]
