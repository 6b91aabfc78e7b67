"""Configurations as they have been published: every key is understood, and none is ignored."""

from __future__ import annotations

from typing import Any, Final

import pytest

from popc.hosts.paddle import IpuStrategy
from popc.hosts.tensorflow import (
    DeviceConnectionType,
    IPUConfig,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
)
from popc.options import resolve_options

# Of Graphcore's models on the Hub; keys that all of them have are left out here.
_COMMON: Final[dict[str, Any]] = {
    "executable_cache_dir": "./exe_cache",
    "optimizer_state_offchip": True,
    "replicated_tensor_sharding": True,
    "enable_half_partials": True,
    "recompute_checkpoint_every_layer": True,
}
_PODS: Final = {"pod4": 1, "pod8": 2, "pod16": 4, "pod32": 8, "pod64": 16, "default": 1}
_OPTIMUM: Final[dict[str, dict[str, Any]]] = {
    "bert-base": {"embedding_serialization_factor": 2, "layers_per_ipu": [0, 4, 4, 4],
                  "ipus_per_replica": 4, "replication_factor": _PODS,
                  "gradient_accumulation_steps": 512, "matmul_proportion": [0.22] * 4,
                  "enable_half_first_order_momentum": True},
    "bert-large": {"embedding_serialization_factor": 2, "layers_per_ipu": [3, 7, 7, 7],
                   "replication_factor": 4, "gradient_accumulation_steps": 512, "seed": 42,
                   "output_mode": "final", "inference_device_iterations": 4,
                   "matmul_proportion": [0.15, 0.3, 0.3, 0.3]},
    "roberta-large": {"embedding_serialization_factor": 1, "layers_per_ipu": [3, 7, 7, 7],
                      "device_iterations": 4, "replication_factor": 4, "ipus_per_replica": 4,
                      "matmul_proportion": [0.1, 0.2, 0.25, 0.25]},
    "gpt2-medium": {"embedding_serialization_factor": 0, "layers_per_ipu": [3, 7, 7, 7],
                    "device_iterations": 2, "replication_factor": 4, "ipus_per_replica": 4,
                    "inference_replication_factor": 4},
    "vit-base": {"layers_per_ipu": [3, 3, 3, 3], "matmul_proportion": [0.3],
                 "gradient_accumulation_steps": 128, "ipus_per_replica": 4},
    "hubert-base": {"layers_per_ipu": [0, 4, 4, 4], "matmul_proportion": [0.25] * 4,
                    "gradient_accumulation_steps": 512, "inference_device_iterations": 4},
    "wav2vec2-ctc-base": {"embedding_serialization_factor": 0, "layers_per_ipu": [9, 4, 4, 4],
                          "replication_factor": _PODS, "inference_replication_factor": _PODS,
                          "ipus_per_replica": 4},
    "mt5-small": {"layers_per_ipu": [0, 8, 8, 0], "inference_layers_per_ipu": [0, 8, 8, 0],
                  "embedding_serialization_factor": None, "device_iterations": 10,
                  "serialized_embedding_splits_per_ipu": [4, 4, 0, 0],
                  "projection_serialization_factor": 4, "inference_matmul_proportion": 0.6},
    "whisper-small": {"layers_per_ipu": [1, 2, 3, 3, 3, 0, 6, 6],
                      "matmul_proportion": [0.6, 0.6, 0.2, 0.2, 0.2, 0.6, 0.2, 0.2],
                      "serialized_projection_splits_per_ipu": [0, 0, 0, 0, 0, 4, 0, 0]},
    "whisper-tiny": {"layers_per_ipu": [4, 4], "matmul_proportion": 0.6,
                     "projection_serialization_factor": 4},
}  # fmt: skip
_CUTS: Final = {
    "bert-base": ["serialize_lookup_factor = 2"],
    "bert-large": ["serialize_lookup_factor = 2"],
    "mt5-small": ["serialize_lookup_factor = 8", "serialize_matmul_factor = 4"],
    "whisper-small": ["serialize_matmul_factor = 4"],
    "whisper-tiny": ["serialize_matmul_factor = 4"],
}


@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", _OPTIMUM)
def test_models_of_the_hub(name: str, trains: bool) -> None:  # noqa: FBT001 - a parameter
    table = {**_COMMON, **_OPTIMUM[name]}
    options = resolve_options(values=table, trains=trains)
    assert options.layers_per_ipu == tuple(table["layers_per_ipu"])
    assert options.num_ipus == len(table["layers_per_ipu"])
    said = [str(rule) for rule in options.annotate]
    wanted = _CUTS.get(name, []) if trains else []
    assert len(said) == len(wanted)
    assert all(cut in rule for cut, rule in zip(wanted, said, strict=True))
    silent = {"executable_cache_dir", "enable_half_first_order_momentum"} & table.keys()
    assert len(options.foreign.notes) == len(silent)


def test_a_residual_network_for_tensorflow() -> None:
    """As the examples for image classification set it."""
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = True
    config.optimizations.merge_infeed_io_copies = True
    config.optimizations.maximum_reduce_many_buffer_size = 0
    config.optimizations.maximum_cross_replica_sum_buffer_size = 3_000_000
    config.optimizations.minimum_remote_tensor_size = 128
    config.norms.use_stable_statistics = True
    config.norms.experimental.distributed_batch_norm_replica_group_size = 1
    config.floating_point_behaviour.inv = True
    config.floating_point_behaviour.esr = StochasticRoundingBehaviour.ON
    config.floating_point_behaviour.nanoo = True
    config.experimental.enable_prng_stability = True
    config.scheduling.algorithm = SchedulingAlgorithm.SHORTEST_PATH
    config.device_connection.enable_remote_buffers = True
    config.device_connection.type = DeviceConnectionType.ON_DEMAND
    config.io_tiles.num_io_tiles = 32
    config.io_tiles.place_ops_on_io_tiles = True
    config.matmuls.poplar_options["partialsType"] = "half"
    config.convolutions.poplar_options["partialsType"] = "half"
    config.convolutions.poplar_options["availableMemoryProportion"] = "0.15"
    config.convolutions.poplar_options["gatherConvOutput"] = "true"
    config.compilation_poplar_options = {"target.deterministicWorkers": "portable"}
    options = resolve_options(values={**config}, trains=True)
    assert (options.num_ipus, options.num_io_tiles) == (4, 32)
    assert options.merge_all_reduce_bytes == 3_000_000
    assert options.enable_stochastic_rounding
    assert options.nan_on_overflow
    assert options.partials_type == options.partials_type_matmuls == "half"
    assert dict(options.available_memory_by_op_type)["Conv"] == 0.15
    told = " ".join(options.foreign.notes)
    for name in ("use_stable_statistics", "gatherConvOutput", "deterministicWorkers", "ON_DEMAND"):
        assert name in told


_PADDLE: Final[dict[str, Any]] = {
    "is_training": True, "enable_manual_shard": True, "enable_pipelining": True,
    "batches_per_step": 2, "micro_batch_size": 1, "loss_scaling": 4.0,
    "enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 8,
    "enable_gradient_accumulation": True, "accumulation_factor": 16,
    "auto_recomputation": 3, "enable_half_partial": True,
    "available_memory_proportion": 0.28, "enable_stochastic_rounding": True,
    "max_weight_norm": 65504.0, "default_prefetch_buffering_depth": 3,
    "rearrange_anchors_on_host": False, "enable_fp16": True, "random_seed": 42,
    "use_no_bias_optimizer": True, "enable_prefetch_datastreams": True,
    "enable_outlining": True, "subgraph_copying_strategy": 1, "outline_threshold": 10.0,
    "disable_grad_accumulation_tensor_streams": True,
    "schedule_non_weight_update_gradient_consumers_early": True,
    "cache_path": "paddle_cache", "enable_floating_point_checks": False,
    "accl1_type": "FLOAT", "weight_decay_mode": "decay",
    "location_optimizer": {"on_chip": 0, "use_replicated_tensor_sharding": 1},
    "accumulate_outer_fragment": {3: [0]},
    "convolution_options": {"partialsType": "half"},
    "engine_options": {"opt.useAutoloader": "true"}, "enable_engine_caching": True,
}  # fmt: skip
_OF_PADDLE: Final[dict[str, Any]] = {
    "num_ipus": 4, "replicated_graph_count": 2, "virtual_graph_mode": "manual",
    "enable_pipelining": True, "batches_per_step": 2, "batch_size": 1,
    "accumulation_factor": 16, "auto_recomputation": "pipeline", "partials_type": "half",
    "partials_type_matmuls": "half", "available_memory_proportion": 0.28,
    "enable_stochastic_rounding": True, "default_buffering_depth": 3,
    "precision": "float16", "seed": 42, "enable_outlining": True,
    "subgraph_copying_strategy": "just_in_time", "outline_threshold": 10.0,
    "schedule_non_weight_update_gradient_consumers_early": True,
    "accumulate_outer_fragment_schedule": "overlap_memory_optimized",
    "accumulate_outer_fragment_excluded_virtual_graphs": (0,),
    "optimizer_state_tensor_location": (
        ("replicated_tensor_sharding", True),
        ("storage", "off_chip"),
    ),
}  # fmt: skip


def test_a_bert_for_paddle() -> None:
    """As the example of PaddleNLP sets it: 4 chips for each of 2 replicas."""
    strategy = IpuStrategy()
    strategy.set_options(_PADDLE)
    options = resolve_options(values={**strategy}, trains=True)
    for name, value in _OF_PADDLE.items():
        found = getattr(options, name)
        assert (tuple(sorted(found.items())) if name.endswith("_location") else found) == value
    assert dict(options.foreign.training) == {
        "optimizer.loss_scaling": 4.0,
        "optimizer.accl1_type": "float32",
        "optimizer.weight_decay_mode": "decay",
    }
    told = " ".join(options.foreign.notes)
    for name in ("max_weight_norm", "cache_path", "engine_options", "use_no_bias_optimizer"):
        assert name in told
