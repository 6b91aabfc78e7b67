"""Schemas of what is said about costs: by report, diff, estimate, explain and tune."""

from __future__ import annotations

from typing import Final

from popc.cli.schema_words import (
    ANY,
    COUNT,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    list_of,
    map_of,
    optional,
    record,
)

__all__ = ["DIFF", "ESTIMATE", "EXPLAIN", "REPORT", "TARGET", "TUNE"]

_CYCLES: Final = record(
    {"total": COUNT, "compute": COUNT, "exchange": COUNT, "sync": COUNT},
    vertex_launch=COUNT,
    host_exchange=COUNT,
)
_KINDS: Final = record(
    {"total": COUNT, "compute": COUNT, "exchange": COUNT, "sync": COUNT, "launch": COUNT},
    host=COUNT,
)
_NUMBERS_OF_TARGET: Final = map_of({"type": ["integer", "number", "string", "boolean"]})
TARGET: Final = record(
    {
        "name": TEXT,
        "description": TEXT,
        **dict.fromkeys(("tile", "conv", "exchange", "links", "host"), _NUMBERS_OF_TARGET),
        "num_ipus": COUNT,
        "num_io_tiles": COUNT,
        "selection_order": TEXT,
    },
    aliases=list_of(TEXT),
    peak_tflops=map_of(NUMBER),
)
_PIPELINE: Final = record(
    {
        "fill_cycles": COUNT,
        "turn_cycles": COUNT,
        "turns": COUNT,
        "flush_cycles": COUNT,
        "copy_cycles_per_turn": COUNT,
        "hidden_cycles": COUNT,
        "hidden": map_of(COUNT),
        "utilisation": NUMBER,
        "chips": list_of(record({"ipu": WHOLE, "stages": list_of(WHOLE), "cycles": COUNT})),
    }
)
_MEMORY_OF_CHIP: Final = record(
    {
        **dict.fromkeys(
            (
                *("limit_bytes", "peak_bytes", "average_bytes", "always_live_bytes"),
                *("not_always_live_bytes", "total_bytes", "tiles_over"),
            ),
            COUNT,
        ),
        "peak_step": TEXT,
        **dict.fromkeys(("busiest", "average", "regions"), map_of(COUNT)),
    },
    **dict.fromkeys(("always_live", "peak", "code"), list_of(COUNT)),
    steps=list_of(
        record(
            {
                "name": TEXT,
                "activations": COUNT,
                "temporary": COUNT,
                "busiest": COUNT,
                "tile": WHOLE,
            }
        )
    ),
    tensors=list_of(
        record(
            {
                "name": TEXT,
                "type": TEXT,
                "kind": TEXT,
                "bytes": COUNT,
                "first": WHOLE,
                "last": WHOLE,
                "origin": TEXT,
                "on_busiest": COUNT,
            }
        )
    ),
)
_OP_COST: Final = record(
    {
        "name": TEXT,
        "op_type": TEXT,
        "origin": TEXT,
        "ipu": WHOLE,
        "times": COUNT,
        "cycles": map_of(COUNT),
        "hidden": COUNT,
        "step": optional(list_of(COUNT)),
        "temporary_bytes": COUNT,
        "plans": list_of(TEXT),
        "phases": list_of(map_of({"type": ["integer", "string"]})),
    }
)
ESTIMATE: Final = record(
    {
        "target": TARGET,
        "fits": TRUTH,
        "cycles": _KINDS,
        "seconds": NUMBER,
        "samples": COUNT,
        "samples_per_second": NUMBER,
        "device_cycles": COUNT,
        "hidden_cycles": COUNT,
        "beside": _KINDS,
        "assumed_loops": list_of(TEXT),
        "pipeline": optional(_PIPELINE),
        "plans": COUNT,
        "memory": list_of(_MEMORY_OF_CHIP),
    },
    ops=list_of(_OP_COST),
)

# -- diff ------------------------------------------------------------------------------------------

_NUMBERS: Final = list_of(record({"name": TEXT, "before": NUMBER, "after": NUMBER}))
_VALUES: Final = list_of(record({"name": TEXT, "before": ANY, "after": ANY}))
_CHANGE: Final = record({"before": ANY, "after": ANY})
_CHANGES: Final = list_of(_CHANGE)
_OP: Final = record({"name": TEXT, "op_type": TEXT, "node": TEXT, "cycles": COUNT})
_CHANGED_OP: Final = record(
    {"name": TEXT, "op_type": TEXT, "node": TEXT, "cycles": _CHANGE},
    temporary_bytes=_CHANGE,
    executions=_CHANGE,
    ipu=_CHANGE,
    plans=_CHANGE,
)
_COSTS: Final = record(
    {
        "target": _VALUES,
        "cycles": _NUMBERS,
        "seconds": _CHANGES,
        "fits": _CHANGES,
        "tiles": map_of(_NUMBERS),
        "op_types": _NUMBERS,
        "ops": record(
            {
                "changed": list_of(_CHANGED_OP),
                "added": list_of(_OP),
                "removed": list_of(_OP),
            }
        ),
    }
)
DIFF: Final = record(
    {
        "before": TEXT,
        "after": TEXT,
        "same": TRUTH,
        "archive_bytes": record({"before": COUNT, "after": COUNT}),
        "blob_bytes": _NUMBERS,
        "without_costs": list_of(TEXT),
    },
    costs=_COSTS,
    instructions=_NUMBERS,
    memory_of_runtime=_NUMBERS,
    interface=record(
        {"inputs": _VALUES, "outputs": _VALUES, "variables": _VALUES, "other_programs": _VALUES}
    ),
    options=_VALUES,
    provenance=_VALUES,
    content=_VALUES,
)

# -- report ----------------------------------------------------------------------------------------

_STEP: Final = record(
    {
        "step": COUNT,
        "name": TEXT,
        "not_always_live_bytes": COUNT,
        "temporary_bytes": COUNT,
        "max_tile_bytes": COUNT,
        "max_tile": WHOLE,
    }
)
_LIVE_TENSOR: Final = record(
    {
        "name": TEXT,
        "type": TEXT,
        "kind": TEXT,
        "node": TEXT,
        "bytes": COUNT,
        "bytes_on_max_tile": COUNT,
        "live_from_step": WHOLE,
        "live_to_step": WHOLE,
    }
)
_CHIPS: Final = list_of(
    record(
        {
            "ipu": COUNT,
            "limit_bytes": COUNT,
            "max_tile_bytes": COUNT,
            "max_tile": WHOLE,
            "tiles": COUNT,
            "tiles_over_limit": COUNT,
            "total_bytes": COUNT,
            "always_live_bytes": COUNT,
            "not_always_live_bytes": COUNT,
            "peak_step": optional(_STEP),
            "by_category": map_of(record({"max_tile": NUMBER, "average_tile": NUMBER})),
            "by_region": map_of(COUNT),
            "biggest_tensors": list_of(_LIVE_TENSOR),
        },
        by_tile=record({"total": list_of(COUNT), "always_live": list_of(COUNT)}),
        liveness=list_of(_STEP),
    )
)
_VERTICES: Final = list_of(record({"vertex": TEXT, "compute_sets": COUNT, "compute_cycles": COUNT}))
_EXECUTED: Final = {
    "name": TEXT,
    "op_type": TEXT,
    "node": TEXT,
    "ipu": WHOLE,
    "executions": COUNT,
    "cycles": _CYCLES,
    "hidden_host_cycles": COUNT,
    "temporary_bytes": COUNT,
    "plans": list_of(TEXT),
}
_SUMMARY: Final = record(
    {
        "archive": record(
            {"name": TEXT, "bytes": COUNT, "popc": TEXT, "model_sha256": TEXT, "replicas": COUNT}
        ),
        "provenance": map_of(TEXT),
        "inputs": list_of(TEXT),
        "outputs": list_of(TEXT),
        "options": list_of(record({"name": TEXT, "value": ANY, "origin": TEXT})),
        "target": record(
            {
                "name": TEXT,
                "ipus": COUNT,
                "tiles_per_ipu": COUNT,
                "io_tiles": COUNT,
                "bytes_per_tile": COUNT,
                "clock_hz": COUNT,
            }
        ),
        "fits": TRUTH,
        "total_cycles": COUNT,
        "device_cycles": COUNT,
        "seconds": NUMBER,
        "samples": COUNT,
        "samples_per_second": NUMBER,
        "max_tile_bytes": COUNT,
        "assumed_loops": list_of(TEXT),
    }
)
_GRAPH: Final = record(
    {
        "ops": COUNT,
        "instructions": COUNT,
        "compute_sets": COUNT,
        "exchanges": COUNT,
        "planned_products": COUNT,
        "ops_by_type": map_of(COUNT),
        "vertices_by_type": _VERTICES,
        "memory": _CHIPS,
    },
    plans=map_of(list_of(TEXT)),
)
_EXECUTION: Final = record(
    {
        "cycles": _CYCLES,
        "hidden_host_cycles": COUNT,
        "pipeline": optional(_PIPELINE),
        "seconds": NUMBER,
        "ops": COUNT,
        "cycles_by_op_type": map_of(COUNT),
        "compute_cycles_by_vertex": _VERTICES,
        "most_expensive": list_of(record(_EXECUTED)),
    },
    program_steps=list_of(
        record(
            {
                **_EXECUTED,
                "step": COUNT,
                "start_cycle": COUNT,
                "phases": list_of(record({"name": TEXT, "vertex": TEXT, "cycles": _CYCLES})),
            }
        )
    ),
)
REPORT: Final = record(
    {"programs": list_of(TEXT)},
    summary=_SUMMARY,
    graph=_GRAPH,
    execution=_EXECUTION,
    memory=record({"ipus": _CHIPS}),
    files=list_of(record({"file": TEXT, "bytes": COUNT})),
)

# -- explain and tune ------------------------------------------------------------------------------

_CHANGE_OF_OPTIONS: Final = record(
    {}, options=map_of(ANY), dims=map_of(COUNT), shapes=map_of(list_of(COUNT))
)
_OUTCOME: Final[dict[str, Schema]] = {
    "fits": TRUTH,
    "cycles": COUNT,
    "samples": COUNT,
    "peak_bytes": COUNT,
    "excess_bytes": COUNT,
    "tiles_over": COUNT,
}
_FINDING: Final = record(
    {
        "name": TEXT,
        "note": TEXT,
        "change": _CHANGE_OF_OPTIONS,
        "arguments": list_of(TEXT),
        **_OUTCOME,
    },
    toml=TEXT,
    cycles_change=WHOLE,
    peak_bytes_change=WHOLE,
    saves={"enum": ["time", "memory"]},
)
_SHARE: Final = record(
    {"name": TEXT, "amount": COUNT, "count": COUNT}, op_type=TEXT, node=TEXT, plan=TEXT
)
_HOLDER: Final = record(
    {"name": TEXT, "type": TEXT, "kind": TEXT, "on_tile": COUNT, "bytes": COUNT},
    node=TEXT,
    until=TEXT,
)
_FULLEST: Final = record(
    {
        **dict.fromkeys(
            (
                *("ipu", "limit", "peak", "tile", "tiles", "tiles_over"),
                *("step", "steps", "steps_over", "others"),
            ),
            COUNT,
        )
    },
    excess=WHOLE,
    op=TEXT,
    op_type=TEXT,
    node=TEXT,
    plan=TEXT,
    categories=map_of(COUNT),
    holders=list_of(_HOLDER),
    temporary=list_of(_SHARE),
)
EXPLAIN: Final = record(
    {
        "target": TEXT,
        "fits": TRUTH,
        "cycles": _KINDS,
        "seconds": NUMBER,
        "samples": COUNT,
        "ipus": list_of(_FULLEST),
        "slowest_ops": list_of(_SHARE),
        "cycles_by_op_type": map_of(COUNT),
    },
    planned=COUNT,
    fixes=list_of(_FINDING),
    insufficient=list_of(_FINDING),
    not_tried=list_of(TEXT),
    wins=list_of(_FINDING),
)
_MEASURED: Final = record({**_OUTCOME, "archive_bytes": COUNT})
_TRIAL: Final = record(
    {**_OUTCOME, "archive_bytes": COUNT, "options": map_of(ANY), "arguments": list_of(TEXT)}
)
TUNE: Final = record(
    {
        "options_file": TEXT,
        "objective": TEXT,
        "fits": TRUTH,
        "planned": COUNT,
        "before": _MEASURED,
        "chosen": optional(_TRIAL),
        "without": map_of(_MEASURED),
        "pareto_front": list_of(_TRIAL),
        "did_not_matter": list_of(TEXT),
        "not_possible": map_of(TEXT),
        "not_explored": list_of(TEXT),
    }
)
