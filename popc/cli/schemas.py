"""The contents of the JSON documents of all verbs, as JSON Schemas.

A document may hold more than its schema says; what the schema says stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from popc.cli.verbs import VERBS

__all__ = ["DOCUMENTS", "document_schema", "options_file_schema"]

_Schema = Mapping[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_TRUTH: Final[_Schema] = {"type": "boolean"}
_COUNT: Final[_Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[_Schema] = {"type": "number"}
_OBJECT: Final[_Schema] = {"type": "object"}
_VALUE: Final[_Schema] = {
    "description": "A number; NaN and infinities are words.",
    "anyOf": [{"type": ["number", "boolean", "null"]}, {"enum": ["nan", "inf", "-inf"]}],
}


def _list(of: _Schema) -> _Schema:
    return {"type": "array", "items": of}


def _map(of: _Schema) -> _Schema:
    return {"type": "object", "additionalProperties": of}


def _optional(one: _Schema) -> _Schema:
    return {"anyOf": [one, {"type": "null"}]}


def _record(required: Mapping[str, _Schema], **others: _Schema) -> _Schema:
    """An object with the fields ``required``, and perhaps some ``others``."""
    return {
        "type": "object",
        "properties": {**required, **others},
        "required": sorted(required),
    }


_RESULT: Final = _record(
    {
        "name": _TEXT,
        "dtype": _TEXT,
        "shape": _list(_COUNT),
        "min": _VALUE,
        "mean": _VALUE,
        "max": _VALUE,
        "first_values": _list(_VALUE),
    },
    values={"description": "All elements, nested as the shape says.", "type": ["array", "number"]},
)
_CYCLES: Final = _record({"total": _COUNT, "compute": _COUNT, "exchange": _COUNT, "sync": _COUNT})
_TENSOR: Final = _record({"name": _TEXT, "agrees": _TRUTH, "difference": _NUMBER, "type": _TEXT})
_REMOVED: Final = _record({"removed": _list(_TEXT), "bytes": _COUNT, "dry_run": _TRUTH})
_PROVENANCE: Final = _map(_TEXT)

# By the name in ``schema``: one for each verb, and for each of those of `popc cache`.
DOCUMENTS: Final[Mapping[str, _Schema]] = {
    "bench": _record(
        {
            "settings": _record({"runs": _COUNT, "warmup": _COUNT, "engine": _TEXT}),
            "archive_bytes": _COUNT,
            "load_seconds": _NUMBER,
            "first_run_seconds": _NUMBER,
            "latency_seconds": _record({"p50": _NUMBER, "p90": _NUMBER, "p99": _NUMBER}),
            "runs_per_second": _NUMBER,
            "arena_bytes": _COUNT,
            "constant_bytes": _COUNT,
        },
        where=_list(
            _record({"opcode": _TEXT, "native": _TRUTH, "seconds": _NUMBER, "count": _COUNT})
        ),
        compared=_record({"ratio": _NUMBER, "limit_percent": _optional(_NUMBER)}),
    ),
    "cache-clear": _REMOVED,
    "cache-export": _record({"file": _TEXT, "bytes": _COUNT, "keys": _list(_TEXT)}),
    "cache-import": _record({"folder": _TEXT, "keys": _list(_TEXT)}),
    "cache-list": _record(
        {
            "folder": _TEXT,
            "entries": _list(
                _record(
                    {
                        "key": _TEXT,
                        "names": _list(_TEXT),
                        "bytes": _COUNT,
                        "used": _NUMBER,
                        "damaged": _TRUTH,
                        "parts": _OBJECT,
                    }
                )
            ),
        }
    ),
    "cache-prune": _REMOVED,
    "cache-status": _record(
        {
            "folder": _TEXT,
            "entries": _COUNT,
            "damaged": _COUNT,
            "bytes": _COUNT,
            "max_bytes": _COUNT,
            "max_age_seconds": _COUNT,
        }
    ),
    "cache-why": _record(
        {
            "key": _TEXT,
            "hit": _TRUTH,
            "nearest": _optional(_record({"key": _TEXT, "names": _list(_TEXT)})),
            "differences": _list(_record({"part": _TEXT, "entry": _TEXT, "asked": _TEXT})),
        }
    ),
    "check": _record(
        {"kind": {"enum": ["archive", "model"]}, "supported": _TRUTH},
        compiles=_TRUTH,
        problem=_optional(_record({"code": _TEXT, "message": _TEXT, "details": _list(_TEXT)})),
        missing_instructions=_list(_TEXT),
        signed_by=_list(_TEXT),
        unsupported=_list(_record({"op": _TEXT, "domain": _TEXT, "reason": _TEXT})),
    ),
    "sign": _record({"archive": _TEXT, "signature": _TEXT}),
    "compile": _record(
        {},
        archive=_TEXT,
        bytes=_COUNT,
        inputs=_list(_TEXT),
        outputs=_list(_TEXT),
        memory=_map(_COUNT),
        timings=_map(_NUMBER),
        stage=_TEXT,
        text=_TEXT,
        options={"type": ["object", "array"]},
    ),
    "completion": _record({"shell": _TEXT, "script": _TEXT, "use": _TEXT}),
    "diff": _record({"before": _TEXT, "after": _TEXT, "same": _TRUTH}),
    "doctor": _record(
        {
            "python": _TEXT,
            "machine": _TEXT,
            "system": _TEXT,
            "processors": _COUNT,
            "engine": _TEXT,
            "native_kernels": _list(_TEXT),
            "packages": _OBJECT,
            "missing": _list(_TEXT),
        }
    ),
    "estimate": _record({"target": _OBJECT, "fits": _TRUTH, "cycles": _CYCLES, "seconds": _NUMBER}),
    "explain": _record({"target": _TEXT, "fits": _TRUTH}),
    "export": _record({"file": _TEXT, "bytes": _COUNT}),
    "inspect": _record(
        {"kind": {"enum": ["archive", "model"]}, "bytes": _COUNT},
        inputs=_list({"type": ["string", "object"]}),
        outputs=_list({"type": ["string", "object"]}),
        provenance=_PROVENANCE,
        memory=_map(_COUNT),
    ),
    "options": _record(
        {"options": _list(_record({"name": _TEXT, "type": _TEXT, "help": _TEXT, "default": {}}))}
    ),
    "report": _record({}, summary=_OBJECT, graph=_OBJECT, execution=_OBJECT, memory=_OBJECT),
    "run": _record(
        {
            "steps": _COUNT,
            "seconds": _NUMBER,
            "outputs": _list(_RESULT),
            "files": _map(_TEXT),
        }
    ),
    "targets": _record({"targets": _list(_record({"name": _TEXT, "tile": _OBJECT}))}),
    "train": _record({"history": _list(_record({"epoch": _COUNT, "loss": _NUMBER}))}),
    "tune": _record({"options_file": _TEXT, "fits": _TRUTH, "before": _OBJECT}),
    "verify": _record(
        {
            "reference": _TEXT,
            "rtol": _NUMBER,
            "atol": _NUMBER,
            "compared": _COUNT,
            "mismatches": _list(_TENSOR),
            "first_divergence": _optional(_TENSOR),
            "tensors": _list(_TENSOR),
        }
    ),
    "version": _record({"version": _TEXT}),
}
_ERROR: Final = _record(
    {
        "code": _TEXT,
        "message": _TEXT,
        "subject": _TEXT,
        "hint": _TEXT,
        "details": _list(_TEXT),
    }
)
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document_schema(name: str) -> dict[str, Any]:
    """The schema of a document: what every document has, and what this one has if all went well."""
    verb = name.partition("-")[0]
    about = VERBS[verb].summary if verb in VERBS else "Show the version."
    return {
        "$schema": _DIALECT,
        "$id": f"popc.{name}/1",
        "title": f"popc {name.replace('-', ' ')}",
        "description": about,
        **_record(
            {
                "schema": {"const": f"popc.{name}/1"},
                "status": {"enum": ["ok", "negative", "error"]},
                "exit_code": _COUNT,
                "warnings": _list(_record({"message": _TEXT})),
            }
        ),
        "if": {"required": ["error"]},
        "then": {"properties": {"error": _ERROR}},
        "else": DOCUMENTS[name],
    }


def options_file_schema() -> dict[str, Any]:
    """The schema of a file for ``--options``."""
    from popc.options import describe_options

    return {
        "$schema": _DIALECT,
        "$id": "popc.options-file/1",
        "title": "A file for popc compile --options",
        "description": "Names of PopART's options are taken too, and are not listed here.",
        "type": "object",
        "properties": {row["name"]: _option(row) for row in describe_options()},
    }


def _option(row: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": row["help"]}
    kind = row["type"]
    if kind == "bool":
        schema["type"] = "boolean"
    elif kind in ("int", "float"):
        schema["type"] = "integer" if kind == "int" else "number"
        if row["range"]:
            schema["minimum"], schema["maximum"] = row["range"]
    elif row["choices"] and isinstance(row["default"], str):
        schema["enum"] = row["choices"]
    default = row["default"]
    if isinstance(default, bool | int | float | str):
        schema["default"] = default
    return schema
