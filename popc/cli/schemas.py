"""The contents of the JSON documents of all verbs, as JSON Schemas.

A document may hold more than its schema says; what the schema says stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from popc.cli.schema_costs import DIFF, ESTIMATE, EXPLAIN, REPORT, TARGET, TUNE
from popc.cli.schema_feeds import FEEDS
from popc.cli.schema_words import (
    ANY,
    COUNT,
    NUMBER,
    NUMBER_OR_WORD,
    TEXT,
    TRUTH,
    Schema,
    list_of,
    map_of,
    optional,
    record,
)
from popc.cli.verbs import VERBS

__all__ = ["DOCUMENTS", "document_schema", "options_file_schema"]

_RESULT: Final = record(
    {
        "name": TEXT,
        "dtype": TEXT,
        "shape": list_of(COUNT),
        "min": NUMBER_OR_WORD,
        "mean": NUMBER_OR_WORD,
        "max": NUMBER_OR_WORD,
        "first_values": list_of(NUMBER_OR_WORD),
    },
    values={"description": "All elements, nested as the shape says.", "type": ["array", "number"]},
    first_labels=list_of(TEXT),
    labels={
        "description": "What all elements stand for, nested as the shape says.",
        "type": ["array", "string"],
    },
    columns=list_of({"type": ["string", "integer"]}),
)
_TENSOR: Final = record(
    {"name": TEXT, "agrees": TRUTH, "difference": NUMBER, "type": TEXT},
    allowed=NUMBER,
    node=TEXT,
    program=TEXT,
    reason=TEXT,
)
_REMOVED: Final = record({"removed": list_of(TEXT), "bytes": COUNT, "dry_run": TRUTH})

_SPEC: Final[dict[str, Schema]] = {"name": TEXT, "dtype": TEXT, "shape": list_of(COUNT)}
_TENSOR_SPEC: Final = record(
    {
        **_SPEC,
        "labels": list_of({"type": ["string", "integer"]}),
        "label_kind": optional(TEXT),
        "sizes": list_of(TEXT),
    }
)
_VARIABLE: Final = record(
    {
        **_SPEC,
        "role": TEXT,
        "offset": COUNT,
        "rows": list_of(COUNT),
        "whole": list_of(COUNT),
        "off_chip": TRUTH,
    }
)
_TRAINING: Final = record(
    {
        "optimizer": TEXT,
        "loss": TEXT,
        "settings": {"description": "The optimizer, as JSON.", **TEXT},
        "clip_norms": list_of(TEXT),
        "hyper_parameters": list_of(
            record({"name": TEXT, "group": TEXT, "value": NUMBER, "variable": TEXT})
        ),
    }
)
_OF_PROGRAM: Final = {
    "inputs": list_of(_TENSOR_SPEC),
    "outputs": list_of(_TENSOR_SPEC),
    "streams": list_of(
        record(
            {"name": TEXT, "direction": TEXT, "dtype": TEXT, "shape": list_of(COUNT)},
            samples_per_step=COUNT,
            depth=COUNT,
            return_type=optional(TEXT),
            synthetic=optional(TEXT),
        )
    ),
    "sequences": list_of(record({"name": TEXT, "tensors": list_of(TEXT)})),
    "memory": map_of(COUNT),
}
_INSPECT: Final = record(
    {"kind": {"enum": ["archive", "model"]}, "bytes": COUNT},
    **{
        **_OF_PROGRAM,
        **dict.fromkeys(("inputs", "outputs"), list_of({"anyOf": [TEXT, _TENSOR_SPEC]})),
    },
    # of archives
    blobs=list_of(
        record(
            {
                "name": TEXT,
                "kind": TEXT,
                "codec": TEXT,
                "stored_bytes": COUNT,
                "raw_bytes": COUNT,
                "sha256": TEXT,
            }
        )
    ),
    compiler_version=TEXT,
    fits=list_of(
        record(
            {
                "dimension": TEXT,
                "modes": list_of({"enum": ["fill", "pad", "split"]}),
                "inputs": map_of(COUNT),
                "outputs": map_of(COUNT),
                "fills": map_of(TEXT),
            }
        )
    ),
    floating_point_checks=list_of(TEXT),
    format_version=list_of(COUNT),
    host_calls=list_of(record({"name": TEXT, "inputs": list_of(TEXT), "outputs": list_of(TEXT)})),
    identical_seeds=TRUTH,
    index_limits=map_of(COUNT),
    model_sha256=TEXT,
    operators=list_of(TEXT),
    options=list_of(record({"name": TEXT, "value": ANY, "origin": TEXT})),
    program=TEXT,
    programs=list_of(TEXT),
    provenance=map_of(TEXT),
    replicas=COUNT,
    schema_hash=TEXT,
    seed=COUNT,
    training=optional(_TRAINING),
    variables=list_of(_VARIABLE),
    variants=list_of(record({"name": TEXT, "trains": TRUTH, **_OF_PROGRAM})),
    # of models
    ir_version=COUNT,
    nodes=list_of(TEXT),
    op_counts=map_of(COUNT),
    opsets=list_of(list_of({"type": ["string", "integer"]})),
    producer=TEXT,
    weight_bytes=COUNT,
    weight_count=COUNT,
    weights=list_of(TEXT),
)

_PROBLEM: Final = optional(record({"code": TEXT, "message": TEXT, "details": list_of(TEXT)}))

# By the name in ``schema``: one for each verb, and for each below `popc cache` and `popc feed`.
DOCUMENTS: Final[Mapping[str, Schema]] = {
    **FEEDS,
    "bench": record(
        {
            "settings": record({"runs": COUNT, "warmup": COUNT, "engine": TEXT}),
            "archive_bytes": COUNT,
            "load_seconds": NUMBER,
            "first_run_seconds": NUMBER,
            "latency_seconds": record({"p50": NUMBER, "p90": NUMBER, "p99": NUMBER}),
            "runs_per_second": NUMBER,
            "arena_bytes": COUNT,
            "constant_bytes": COUNT,
        },
        where=list_of(record({"opcode": TEXT, "native": TRUTH, "seconds": NUMBER, "count": COUNT})),
        compared=record({"ratio": NUMBER, "limit_percent": optional(NUMBER)}),
    ),
    "cache-clear": _REMOVED,
    "cache-export": record({"file": TEXT, "bytes": COUNT, "keys": list_of(TEXT)}),
    "cache-import": record({"folder": TEXT, "keys": list_of(TEXT)}),
    "cache-list": record(
        {
            "folder": TEXT,
            "entries": list_of(
                record(
                    {
                        "key": TEXT,
                        "names": list_of(TEXT),
                        "bytes": COUNT,
                        "used": NUMBER,
                        "damaged": TRUTH,
                        "parts": map_of(ANY),
                    }
                )
            ),
        }
    ),
    "cache-prune": _REMOVED,
    "cache-status": record(
        {
            "folder": TEXT,
            "entries": COUNT,
            "damaged": COUNT,
            "bytes": COUNT,
            "max_bytes": COUNT,
            "max_age_seconds": COUNT,
        }
    ),
    "cache-why": record(
        {
            "key": TEXT,
            "hit": TRUTH,
            "nearest": optional(record({"key": TEXT, "names": list_of(TEXT)})),
            "differences": list_of(record({"part": TEXT, "entry": TEXT, "asked": TEXT})),
        }
    ),
    "check": record(
        {"kind": {"enum": ["archive", "model"]}, "supported": TRUTH},
        compiles=TRUTH,
        problem=_PROBLEM,
        programs=list_of(
            record(
                {
                    "shapes": map_of(list_of(COUNT)),
                    "dims": map_of(COUNT),
                    "compiles": TRUTH,
                    "problem": _PROBLEM,
                }
            )
        ),
        missing_instructions=list_of(TEXT),
        signed_by=list_of(TEXT),
        unsupported=list_of(
            record(
                {
                    "op": TEXT,
                    "domain": TEXT,
                    "opset": COUNT,
                    "reason": TEXT,
                    "nodes": list_of(TEXT),
                }
            )
        ),
    ),
    "serve": record({"models": list_of(TEXT)}),
    "sign": record({"archive": TEXT, "signature": TEXT}),
    "compile": record(
        {},
        archive=TEXT,
        bytes=COUNT,
        inputs=list_of(TEXT),
        outputs=list_of(TEXT),
        programs=list_of(TEXT),
        memory=map_of(COUNT),
        timings=map_of(NUMBER),
        stage=TEXT,
        text=TEXT,
        options={"type": ["object", "array"]},
    ),
    "completion": record({"shell": TEXT, "script": TEXT, "use": TEXT}),
    "diff": DIFF,
    "doctor": record(
        {
            "python": TEXT,
            "machine": TEXT,
            "system": TEXT,
            "processors": COUNT,
            "engine": TEXT,
            "search": TEXT,
            "native_kernels": list_of(TEXT),
            "packages": map_of(optional(TEXT)),
            "missing": list_of(TEXT),
        }
    ),
    "estimate": ESTIMATE,
    "explain": EXPLAIN,
    "export": record({"file": TEXT, "bytes": COUNT}),
    "inspect": _INSPECT,
    "options": record(
        {
            "options": list_of(
                record(
                    {"name": TEXT, "type": TEXT, "help": TEXT, "default": ANY},
                    choices=list_of(TEXT),
                    popart=TEXT,
                    range=optional(list_of(NUMBER)),
                    summary=TEXT,
                    variable=TEXT,
                )
            )
        }
    ),
    "report": REPORT,
    "run": record(
        {
            "steps": COUNT,
            "seconds": NUMBER,
            "outputs": list_of(_RESULT),
            "files": map_of(TEXT),
        },
        top=map_of(list_of(list_of(record({"index": COUNT, "score": NUMBER_OR_WORD}, label=TEXT)))),
    ),
    "targets": record({"targets": list_of(TARGET)}),
    "train": record({"history": list_of(record({"epoch": COUNT, "loss": NUMBER}))}),
    "tune": TUNE,
    "verify": record(
        {
            "reference": TEXT,
            "rtol": NUMBER,
            "atol": NUMBER,
            "compared": COUNT,
            "mismatches": list_of(_TENSOR),
            "first_divergence": optional(_TENSOR),
            "tensors": list_of(_TENSOR),
        }
    ),
    "version": record({"version": TEXT}),
}
_ERROR: Final = record(
    {
        "code": TEXT,
        "message": TEXT,
        "subject": TEXT,
        "hint": TEXT,
        "details": list_of(TEXT),
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
        **record(
            {
                "schema": {"const": f"popc.{name}/1"},
                "status": {"enum": ["ok", "negative", "error"]},
                "exit_code": COUNT,
                "warnings": list_of(record({"message": TEXT})),
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
