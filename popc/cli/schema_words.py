"""The words in which the schemas of JSON documents are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "ANY",
    "COUNT",
    "NUMBER",
    "NUMBER_OR_WORD",
    "TEXT",
    "TRUTH",
    "WHOLE",
    "Schema",
    "list_of",
    "map_of",
    "optional",
    "record",
]

Schema: TypeAlias = Mapping[str, Any]

ANY: Final[Schema] = {}
TEXT: Final[Schema] = {"type": "string"}
TRUTH: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
WHOLE: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
NUMBER_OR_WORD: Final[Schema] = {
    "description": "A number; NaN and infinities are words.",
    "anyOf": [{"type": ["number", "boolean", "null"]}, {"enum": ["nan", "inf", "-inf"]}],
}


def list_of(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    """An object with names that are data."""
    return {"type": "object", "additionalProperties": values}


def optional(schema: Schema) -> Schema:
    """Something, or nothing."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(required: Mapping[str, Schema], **others: Schema) -> Schema:
    """An object with the fields ``required``, and perhaps some ``others``."""
    return {
        "type": "object",
        "properties": {**required, **others},
        "required": sorted(required),
    }
