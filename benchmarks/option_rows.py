"""The settings that `benchmarks.options` measures, each with what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ROWS", "Row"]

_NOTHING: Final[Mapping[str, Any]] = {}
_UNKNOWN: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting.

    Attributes:
        name: What the table calls it.
        options: The options that make it up.
        base: Options of both programs.
        trains: Whether it is about training steps; else about inference.
        tolerance: Relative difference of results that a changed order of arithmetic explains; 0:
            they are the same bit for bit.
        reason: What changes the order, if the tolerance is not 0.
        graphs: Names of the sample networks; all but large ones if empty.
        batch: Samples of a run.
        moves: What the option is for, and what it costs: by the name of a number, its sign.
    """

    name: str
    options: Mapping[str, Any]
    base: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    trains: bool = True
    tolerance: float = 0.0
    reason: str = ""
    graphs: tuple[str, ...] = ()
    batch: int = 8
    moves: Mapping[str, int] = field(default_factory=lambda: _UNKNOWN)


_ACCUMULATE: Final = {"accumulation_factor": 4}
_TWO_CHIPS: Final = {"num_ipus": 2, "virtual_graph_mode": "auto"}
_PIPELINE: Final = {**_TWO_CHIPS, "enable_pipelining": True}
_REPLICAS: Final = {"replicated_graph_count": 2}
_OFF_CHIP: Final = {"storage": "off_chip"}
_SHARDED: Final = {
    "replicated_tensor_sharding": True,
    "min_elements_for_replicated_tensor_sharding": 1,
}
_PHASES: Final = {
    "virtual_graph_mode": "execution_phases",
    "execution_phases": 2,
    "num_ipus": 2,
    "weight_tensor_location": _OFF_CHIP,
    "activation_tensor_location": _OFF_CHIP,
}
_STORED: Final = {"remote bytes": 1, "cycles": 1}
_AWAY: Final = {"on-chip bytes": -1, **_STORED}
_DIVIDED: Final = {"on-chip bytes": -1, "cycles": 1}
_ON_IO_TILES: Final = {"storage": "off_chip", "load_tile_set": "io"}
_FETCHED_LATE: Final = {
    "virtual_graph_mode": "execution_phases",
    "execution_phases": 4,
    "execution_phase_stages": 1,
    "num_io_tiles": 64,
    "weight_tensor_location": _ON_IO_TILES,
    "activation_tensor_location": _ON_IO_TILES,
    "weight_io_schedule": "on_demand",
    "activation_io_schedule": "on_demand",
}
_FETCHED_EARLY: Final = {"weight_io_schedule": "preload", "activation_io_schedule": "preload"}
_BATCH: Final = {"batch_serialization_factor": 4}
# What a part stores and loads again itself is not moved; what another phase stored is.
_PARTS_FROM_AFAR: Final = {**_FETCHED_LATE, **_BATCH}
_SUMS: Final = "gradients are sums of the parts' gradients"
_ROWS: Final = "products of fewer rows may be rounded differently"
_STEPS: Final = {"batches_per_step": 4}
# Whether images lie pixel by pixel, and so how convolutions add up, depends on what is beside them.
_PLANES: Final = {"memory_format": "channels_first"}
_OVERLAP: Final = {
    "num_io_tiles": 64,
    "exchange_strategies": {"*": "overlap_inner_loop"},
    "tile_sets": {"*": "io"},
}


def _scheduling() -> list[Row]:
    algorithms = ("clustering", "post_order", "look_ahead", "shortest_path")
    return [
        *(Row(f"kahn {name}", {"kahn_tie_breaker": name}) for name in ("fifo", "random")),
        *(Row(f"schedule {name}", {"scheduling_algorithm": name}) for name in algorithms),
        Row("no search", {"swap_limit_scheduler": 0}),
        Row("delayed updates", {"delay_var_updates": True}),
    ]


def _updates() -> list[Row]:
    return [
        *(Row(f"merge updates {how}", {"merge_var_update": how}) for how in ("all", "auto_loose")),
        Row("merge updates auto_tight", {"merge_var_update": "auto_tight",
            "merge_var_update_mem_threshold": 20_000}),
    ]  # fmt: skip


def _batches() -> list[Row]:
    rows = [
        Row(f"batch parts {method}", {**_BATCH, "batch_serialization_method": method},
            tolerance=1e-4, reason=_SUMS)
        for method in ("unroll_static", "unroll_dynamic", "loop")
    ]  # fmt: skip
    backward = {**_BATCH, "batch_serialization_transform_context": "bwd"}
    rows.append(Row("batch parts after autodiff", backward, tolerance=1e-4, reason=_SUMS))
    rows += [
        Row(f"parts {name}", {"batch_serialization_batch_schedule": name}, _PARTS_FROM_AFAR,
            graphs=("transformer", "cnn"), batch=64, moves={"cycles": -1})
        for name in ("overlap_on_io", "overlap_on_compute")
    ]  # fmt: skip
    rows += [
        Row(f"batch parts {name}", {**_BATCH, "batch_serialization_batch_schedule": name},
            trains=False, tolerance=1e-6, reason=_ROWS)
        for name in ("scheduler", "isomorphic")
    ]  # fmt: skip
    return rows


def _recomputation() -> list[Row]:
    return [
        Row("recompute standard", {"auto_recomputation": "standard"}),
        Row("recompute all", {"auto_recomputation": "recompute_all"}, moves={"cycles": 1}),
        Row("recompute all but sums",
            {"auto_recomputation": "recompute_all", "checkpoints": ["add_*"]},
            graphs=("transformer",), moves={"peak liveness": -1, "cycles": 1}),
        Row("recompute norm_only", {"auto_recomputation": "norm_only"},
            graphs=("transformer",)),
    ]  # fmt: skip


def _placement() -> list[Row]:
    pipelines = [
        Row(f"pipeline {name}", {**_PIPELINE, "pipeline_schedule": name}, _ACCUMULATE)
        for name in ("grouped", "interleaved", "sequential")
    ]
    recomputing = {**_PIPELINE, "auto_recomputation": "pipeline"}
    return [
        Row("virtual graphs", _TWO_CHIPS),
        *pipelines,
        Row("pipeline recomputing", recomputing, _ACCUMULATE),
        Row("pipeline inference", _PIPELINE, {**_STEPS, **_PLANES}, trains=False),
    ]


def _memory() -> list[Row]:
    kinds = {"weight": _AWAY, "optimizer_state": _AWAY, "activation": _STORED}
    return [
        *(
            Row(f"{name} off chip", {f"{name}_tensor_location": _OFF_CHIP}, moves=moves)
            for name, moves in kinds.items()
        ),
        Row(
            "accumulator off chip",
            {"accumulator_tensor_location": _OFF_CHIP},
            _ACCUMULATE,
            moves=_AWAY,
        ),
        Row("execution phases", _PHASES),
        Row(
            "fetched a phase early",
            _FETCHED_EARLY,
            _FETCHED_LATE,
            graphs=("transformer",),
            moves={"cycles": -1},
        ),
        Row(
            "weights off chip, inference",
            {"weight_tensor_location": _OFF_CHIP},
            trains=False,
            moves=_AWAY,
        ),
    ]


def _replication() -> list[Row]:
    merged = {"merge_all_reduce_collectives": True}
    return [
        Row("merged all-reduces", merged, _REPLICAS),
        Row("contiguous collectives", {**merged, "prepare_schedule_for_merging_collectives": True},
            _REPLICAS),
        Row("sharded optimizer state", {"optimizer_state_tensor_location": _SHARDED}, _REPLICAS,
            moves=_DIVIDED),
        Row("sharded weights", {"weight_tensor_location": _SHARDED}, _REPLICAS, moves=_DIVIDED),
    ]  # fmt: skip


def _rewrites() -> list[Row]:
    return [
        Row("outlining", {"enable_outlining": True}, graphs=("transformer",),
            moves={"instructions": -1, "busiest tile": -1}),
        Row("outlining without pruning", {"enable_outlining": True,
            "enable_outlining_copy_cost_pruning": False}, graphs=("transformer",)),
        Row("patterns minimal", {"patterns": "minimal"}, trains=False, tolerance=1e-5,
            reason="formulas are computed as they are written"),
        Row("nothing in place", {"enable_inplace": False}),
        Row("combined products", {"combine_matmuls": True}, tolerance=1e-4,
            reason="products are larger", graphs=("transformer",)),
        Row("serialised product",
            {"annotate": [{"output": "*", "op_type": "MatMul",
                           "serialize_matmul_mode": "output_channels",
                           "serialize_matmul_factor": 2}]},
            trains=False, tolerance=1e-5, reason="products are smaller", graphs=("mlp",)),
    ]  # fmt: skip


def _transfers() -> list[Row]:
    return [
        Row(
            "overlapped IO",
            _OVERLAP,
            _STEPS,
            trains=False,
            moves={"cycles": -1, "on-chip bytes": 1},
        ),
        Row("overlapped IO, training", _OVERLAP, _ACCUMULATE),
        Row("grouped host sync", {"group_host_sync": True}),
        Row("buffered streams", {"default_buffering_depth": 3}, trains=False),
    ]


def _encoder() -> list[Row]:
    """A transformer whose activations are more than its weights, on one chip and on two."""
    outlined = {"enable_outlining": True}
    several = {**outlined, **_TWO_CHIPS, "accumulation_factor": 8}
    pipeline = {**several, "enable_pipelining": True}
    io_tiles = {"num_io_tiles": 64}
    less = {"busiest tile": -1, "cycles": 1}
    cases: list[tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, int]]] = [
        ("outlined", outlined, {}, {"instructions": -1, "busiest tile": -1}),
        ("recomputing all but sums",
            {"auto_recomputation": "recompute_all", "checkpoints": ["add_*"]}, outlined, less),
        ("activations off chip", {"activation_tensor_location": _ON_IO_TILES}, io_tiles,
            {**_AWAY, **less}),
        ("pipelined", {"enable_pipelining": True}, several, {"cycles": -1, "busiest tile": 1}),
        ("pipelined, recomputing", {"auto_recomputation": "pipeline"}, pipeline, less),
        ("pipelined, outlined", outlined, {**pipeline, "enable_outlining": False},
            {"instructions": -1}),
        ("sharded weights", {"weight_tensor_location": _SHARDED}, _REPLICAS,
            {**_DIVIDED, "busiest tile": -1}),
    ]  # fmt: skip
    return [
        Row(f"encoder {name}", options, base, graphs=("encoder",), batch=16, moves=moves)
        for name, options, base, moves in cases
    ]


ROWS: Final = (
    *_scheduling(),
    *_updates(),
    *_batches(),
    *_recomputation(),
    *_placement(),
    *_memory(),
    *_replication(),
    *_rewrites(),
    *_transfers(),
    *_encoder(),
)
