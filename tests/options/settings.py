"""Settings of options: what is set together, and what both programs of a comparison get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["SETTINGS", "Setting", "find", "merged"]

_NONE: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Setting:
    """Options that are set together.

    Attributes:
        name: What a test calls it.
        options: The options.
        needs: Options that both programs get, with it and without.
        only: "train", "infer", or "" for both.
        tolerance: Relative difference of results that a changed order of arithmetic explains.
        shape: Whether both programs get it, for it says what is computed.
    """

    name: str
    options: Mapping[str, Any]
    needs: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    only: str = ""
    tolerance: float = 0.0
    shape: bool = False


_PIPE: Final = {"num_ipus": 2, "virtual_graph_mode": "auto", "enable_pipelining": True}
_OFF: Final = {"storage": "off_chip"}
_SHARDED: Final = {
    "replicated_tensor_sharding": True,
    "min_elements_for_replicated_tensor_sharding": 1,
}
_REPLICAS: Final = {"replicated_graph_count": 2}
_ACCUMULATE: Final = {"accumulation_factor": 4}
_STEPS: Final = {"batches_per_step": 4}
_MANY: Final = {"several": 4}  # accumulation_factor in training, batches_per_step else
_PHASES: Final = {
    "virtual_graph_mode": "execution_phases",
    "execution_phases": 2,
    "num_ipus": 2,
}
_PARTS: Final = {"batch_serialization_factor": 4}
_IO: Final = {"num_io_tiles": 64, "tile_sets": {"*": "io"}}

# What waits between two stages lies side by side.  A GRU that reads such images runs on the native
# kernel, one that reads the transpose of what the host sent on numpy's, which rounds differently.
_OTHER_KERNEL: Final = 1e-5

_ON_ONE: Final = [{"nodes": "*", "virtual_graph": 1}]


def _one(key: str, value: Any, **more: Any) -> Setting:
    shown = "off-chip" if value == _OFF else "sharded" if value == _SHARDED else value
    return Setting(f"{key}={shown}", {key: value}, **more)


def _shapes() -> list[Setting]:
    return [
        _one("accumulation_factor", 4, only="train", shape=True),
        _one("batches_per_step", 4, shape=True),
        _one("replicated_graph_count", 2, shape=True),
        _one("synthetic_data_mode", "zeros", shape=True),
        _one("precision", "float16", shape=True),
        _one("precision", "mixed", shape=True),
        _one("nan_on_overflow", value=True),
        _one("synthetic_streams", {"*": "zeros"}, shape=True),
        _one("default_anchor", "final", shape=True),
        _one("default_anchor", "sum", shape=True),
        Setting("every other", {"default_anchor": {"type": "every_n", "n": 2}}, _STEPS, shape=True),
        _one("accumulation_and_replication_reduction_type", "mean", shape=True),
        _one("micro_batch_reduction_type", "mean", shape=True),
        _one("replica_reduction_type", "mean", shape=True),
        _one("mean_accumulation_and_replication_reduction_strategy", "running", tolerance=1e-4),
        _one("constant_weights", value=False, only="infer"),
    ]


def _pipelines() -> list[Setting]:
    stages = [
        {"nodes": "*", "virtual_graph": 0, "pipeline_stage": 0},
        {"output": "logits", "virtual_graph": 1, "pipeline_stage": 1},
    ]
    return [
        *(
            Setting(f"pipeline {word}", {**_PIPE, "pipeline_schedule": word}, _MANY)
            for word in ("grouped", "interleaved", "sequential")
        ),
        Setting("pipeline 4", {**_PIPE, "num_ipus": 4}, {"several": 8}, tolerance=_OTHER_KERNEL),
        Setting("pipeline again", {**_PIPE, "auto_recomputation": "pipeline"}, _MANY),
        Setting(
            "pipeline by hand",
            {**_PIPE, "virtual_graph_mode": "manual", "annotate": stages},
            _MANY,
        ),
        *(
            Setting(
                f"pipeline with {word} updates",
                {**_PIPE, "accumulate_outer_fragment_schedule": word},
                _ACCUMULATE,
                "train",
            )
            for word in ("overlap_memory_optimized", "overlap_cycle_optimized")
        ),
    ]


def _placement() -> list[Setting]:
    return [
        _one("available_memory_by_op_type", {"MatMul": 0.1, "Conv": 0.9}),
        Setting(
            "available_memory_per_ipu",
            {"available_memory_per_ipu": [0.1, 0.9]},
            {"num_ipus": 2, "virtual_graph_mode": "auto"},
        ),
        Setting("chips", {"num_ipus": 2, "virtual_graph_mode": "auto"}),
        Setting("manual", {"num_ipus": 2, "virtual_graph_mode": "manual", "annotate": _ON_ONE}),
        *_pipelines(),
        Setting("mapped", {**_PIPE, "device_mapping": [1, 0]}, _MANY),
        Setting(
            "rules of places",
            {
                "num_ipus": 2,
                "virtual_graph_mode": "auto",
                "annotate": [{"on_virtual_graph": 1, "available_memory": 0.2}],
            },
        ),
        Setting("phases", {**_PHASES, "weight_tensor_location": _OFF}),
        Setting("three phases", {**_PHASES, "execution_phases": 3}),
        *(
            Setting(f"phases {word}", {**_PHASES, "execution_phase_schedule": word})
            for word in ("batch", "batch_clustered_io")
        ),
        Setting(
            "one chip's phases",
            {
                **_PHASES,
                "num_ipus": 1,
                "execution_phase_stages": 1,
                "activation_tensor_location": _OFF,
            },
        ),
        _one("ipu_selection_order", "snake"),
        Setting(
            "copies wait",
            {"num_ipus": 2, "virtual_graph_mode": "auto", "merge_ipu_copies_bytes": 1000},
        ),
    ]


def _memory() -> list[Setting]:
    kinds = ("weight", "optimizer_state", "accumulator", "activation")
    only = {"weight": ""}
    return [
        *(_one(f"{kind}_tensor_location", _OFF, only=only.get(kind, "train")) for kind in kinds),
        *(
            _one(f"{kind}_tensor_location", _SHARDED, only="train", needs=_REPLICAS, tolerance=1e-4)
            for kind in kinds[:2]
        ),
        _one(
            "accumulator_tensor_location",
            _SHARDED,
            only="train",
            needs={**_REPLICAS, **_ACCUMULATE},
            tolerance=1e-4,
        ),
        Setting(
            "sharded off chip",
            {"weight_tensor_location": {**_SHARDED, **_OFF}},
            _REPLICAS,
            "train",
            1e-4,
        ),
        Setting("override", {"tensor_location_override": {"fc*": _OFF}}),
        _one("enable_merge_exchange", value=False),
        *(
            _one("auto_recomputation", word, only="train")
            for word in ("standard", "norm_only", "recompute_all")
        ),
        _one("recompute", ["*"], only="train"),
        _one("enable_inplace", value=False),
        _one("memory_format", "channels_first", tolerance=1e-4),
        _one("pack_weights", value=False),
        _one("enable_inplace_ambiguity_checking", value=True),
        _one("fold_limit_bytes", 0),
    ]


def _rows() -> list[Setting]:
    rows = {"accumulate_lookup_rows": True}
    return [Setting("rows of lookups", rows, _ACCUMULATE, "train", 1e-4)]


def _batches() -> list[Setting]:
    methods = ("unroll_static", "unroll_dynamic", "loop")
    return [
        *(
            Setting(
                f"parts {method}", {**_PARTS, "batch_serialization_method": method}, tolerance=1e-4
            )
            for method in methods
        ),
        *(
            Setting(
                f"parts {method} behind",
                {
                    **_PARTS,
                    "batch_serialization_method": method,
                    "batch_serialization_transform_context": "bwd",
                },
                tolerance=1e-4,
            )
            for method in methods
        ),
        *(
            Setting(
                f"parts {word}",
                {**_PARTS, "batch_serialization_batch_schedule": word},
                tolerance=1e-4,
            )
            for word in ("scheduler", "overlap_on_io", "overlap_on_compute")
        ),
        Setting(
            "parts cross over",
            {
                **_PARTS,
                **{
                    f"batch_serialization_concat_on_{word}_change": False
                    for word in ("execution_phase", "pipeline_stage", "virtual_graph")
                },
            },
            tolerance=1e-4,
        ),
    ]


def _rewrites() -> list[Setting]:
    cut = [{"op_type": "*", "output": "*", "serialize_matmul_mode": "output_channels",
            "serialize_matmul_factor": 2}]  # fmt: skip
    cut[0]["op_type"] = "MatMul"
    return [
        _one("enable_outlining", value=True),
        Setting(
            "all outlined",
            {"enable_outlining": True, "enable_outlining_copy_cost_pruning": False,
             "outline_threshold": 0.0},
        ),
        *(_one("patterns", word, tolerance=1e-4) for word in ("no_patterns", "minimal", "all")),
        *(
            _one(f"combine_{word}", value=True, tolerance=1e-4)
            for word in ("matmuls", "convolutions", "embedding_lookups")
        ),
        Setting("cut products", {"annotate": cut}, tolerance=1e-4),
        *(
            _one("merge_var_update", word, only="train")
            for word in ("all", "auto_tight", "auto_loose")
        ),
        Setting("small updates", {"merge_var_update": "auto_tight",
                                  "merge_var_update_mem_threshold": 1000}, only="train"),
        _one("decompose_grad_sum", value=True, only="train", tolerance=1e-4),
        _one("disabled_passes", ["common_subexpressions"]),
        _one("enable_fast_math", value=True, tolerance=1e-4),
    ]  # fmt: skip


def _orders() -> list[Setting]:
    algorithms = ("clustering", "post_order", "look_ahead", "shortest_path")
    return [
        *(_one("kahn_tie_breaker", word) for word in ("fifo", "random")),
        *(_one("scheduling_algorithm", algorithm) for algorithm in algorithms),
        _one("swap_limit_scheduler", 0),
        _one("delay_var_updates", value=True, only="train"),
        _one("schedule_non_weight_update_gradient_consumers_early", value=True, only="train"),
        Setting("priorities", {"annotate": [{"nodes": "*", "schedule_priority": 2}]}),
    ]


def _transfers() -> list[Setting]:
    return [
        *(
            Setting(f"exchange {word}", {**_IO, "exchange_strategies": {"*": word}}, _STEPS)
            for word in ("overlap_inner_loop", "overlap_loops")
        ),
        Setting("io tiles", _IO),
        Setting("full io tiles", {**_IO, "io_tile_memory_proportion": 1e-6}),
        _one("group_host_sync", value=True),
        _one("default_buffering_depth", 2),
        _one("enable_prefetch_datastreams", value=False),
        _one("instrument_with_hardware_cycle_counter", value=True),
        _one("enable_stochastic_rounding", value=True),
        _one("enable_floating_point_checks", value=True, tolerance=1e-4),
        _one("merge_all_reduce_collectives", value=True, only="train", needs=_REPLICAS),
        Setting(
            "merge some bytes",
            {
                f"merge_{kind}_{what}": value
                for kind in ("all_gather", "all_reduce", "reduce_scatter")
                for what, value in (("collectives", True), ("bytes", 100))
            },
            _REPLICAS,
            "train",
        ),
        _one("merge_exchange_bytes", 100),
        _one("merge_all_gather_collectives", value=True, only="train", needs=_REPLICAS),
        _one("merge_reduce_scatter_collectives", value=True, only="train", needs=_REPLICAS),
        Setting(
            "contiguous collectives",
            {
                "merge_all_reduce_collectives": True,
                "merge_all_gather_collectives": True,
                "merge_reduce_scatter_collectives": True,
                "prepare_schedule_for_merging_collectives": True,
            },
            _REPLICAS,
            "train",
        ),
        _one("distributed_batch_norm_replica_group_size", 2, needs=_REPLICAS, shape=True),
    ]


SETTINGS: Final = (
    *_shapes(),
    *_placement(),
    *_memory(),
    *_rows(),
    *_batches(),
    *_rewrites(),
    *_orders(),
    *_transfers(),
)


def _several(name: str, *, trains: bool) -> str:
    if name != "several":
        return name
    return "accumulation_factor" if trains else "batches_per_step"


def merged(
    settings: Sequence[Setting], *, trains: bool
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """All options, and those of the program to compare with; ``None`` if two give one value."""
    options: dict[str, Any] = {}
    base: dict[str, Any] = {}
    for setting in settings:
        for key, value in setting.options.items():
            if options.setdefault(key, value) != value:
                return None
            if setting.shape:
                base[key] = value
    for setting in settings:
        for key, value in setting.needs.items():
            meant = _several(key, trains=trains)
            base[meant] = options.setdefault(meant, value)
    return options, base


def find(names: Iterable[str]) -> list[Setting]:
    """Settings by name."""
    by_name = {setting.name: setting for setting in SETTINGS}
    return [by_name[name] for name in names]
