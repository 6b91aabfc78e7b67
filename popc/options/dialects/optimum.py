"""Optimum Graphcore's IPUConfig, the file ``ipu_config.json``.

Defaults are those of its documentation; keys that later releases (up to 0.7.1) added have theirs.
What ``to_options`` sets without being asked is `_implied`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from popc.options.dialects.common import CACHED, for_inference, for_training
from popc.options.dialects.dialect import (
    TRAIN,
    Becomes,
    Computed,
    Dialect,
    HostKey,
    HostTable,
    Nothing,
    Refused,
)
from popc.options.dialects.kinds import Anything, EnumMember, Maybe, OneOrMany, PerPod, Plain
from popc.options.kinds import Kind, Number, Truth, Whole

__all__ = ["LAYERS", "OPTIMUM"]

_POSITIVE: Final = Whole(low=1)
_PROPORTIONS: Final = OneOrMany(Number(high=1))
LAYERS: Final = OneOrMany(Whole(low=-1))  # -1: what is left, evenly

_ONE_CHIP: Final = "all layers are on one chip"


def _layers(table: HostTable) -> Sequence[int]:
    """The layers of each chip, of the mode that the program is for."""
    own = table["layers_per_ipu"] if table.trains else table["inference_layers_per_ipu"]
    layers = table["layers_per_ipu"] if own is None else own
    as_list = layers if isinstance(layers, tuple) else (layers,)
    chips = table["ipus_per_replica"] if table.trains else table["inference_ipus_per_replica"]
    if chips is None and not table.trains and table["inference_layers_per_ipu"] is None:
        chips = table["ipus_per_replica"]
    return as_list * chips if as_list == (-1,) and chips is not None else as_list


def _placed(table: HostTable) -> Mapping[str, object] | str:
    layers = _layers(table)
    if len(layers) == 1:
        return _ONE_CHIP
    pipelined = table.trains or not table["sharded_execution_for_inference"]
    return {
        "layers_per_ipu": layers,
        "num_ipus": len(layers),
        "virtual_graph_mode": "auto",
        "enable_pipelining": pipelined,
    }


def _chips_agree(name: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    def agree(table: HostTable) -> Mapping[str, object] | str:
        chips = len(_layers(table))
        if chips not in (1, table[name]):
            return f"the layers are on {chips} chips"
        return {"num_ipus": table[name]}

    return agree


def _proportions(name: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    def made(table: HostTable) -> Mapping[str, object] | str:
        value = table[name]
        if value is None:
            return "matmul_proportion is for inference too"
        if isinstance(value, tuple) and len(value) > 1:
            return {"available_memory_per_ipu": value}
        return {"available_memory_proportion": value[0] if isinstance(value, tuple) else value}

    return made


def _all_proportions(table: HostTable) -> Mapping[str, object] | str:
    if not table.trains and table["inference_matmul_proportion"] is not None:
        return "inference_matmul_proportion takes its place"
    return _proportions("matmul_proportion")(table)


def _state(table: HostTable) -> Mapping[str, object] | str:
    place = "off_chip" if table["optimizer_state_offchip"] else "on_chip"
    shared = table["replicated_tensor_sharding"] and table["replication_factor"] > 1
    sharing = {"replicated_tensor_sharding": True} if shared else {}
    return {"optimizer_state_tensor_location": {"storage": place, **sharing}}


def _sharding(table: HostTable) -> Mapping[str, object] | str:
    if table["replicated_tensor_sharding"] and table["replication_factor"] == 1:
        return "there is one replica: nothing is divided"
    return "see optimizer_state_offchip, which says it too"


def _half_partials(table: HostTable) -> Mapping[str, object] | str:
    if not table["enable_half_partials"]:
        return {"partials_type": "float", "partials_type_matmuls": "float"}
    return {"partials_type": "half", "partials_type_matmuls": "half"}


# The tables of words, and the products that give scores of words, in the models of transformers.
_WORD_TABLES: Final = ("*word_embeddings*", "*embed_tokens*", "*wte*", "*shared*")
_PROJECTIONS: Final = (
    "*lm_head*",
    "*predictions*decoder*",
    "*vocab_projector*",
    "*proj_out*",
    "*embed_out*",
)


def _cut(
    name: str, what: str, patterns: Sequence[str], **said: str
) -> Callable[[HostTable], Mapping[str, object] | str]:
    """An annotation that makes as many parts as ``name`` says, for all chips or chip by chip."""

    def cut(table: HostTable) -> Mapping[str, object] | str:
        value = table[name]
        factor = sum(value) if isinstance(value, tuple) else value
        if factor in (None, 0, 1):
            return "they stay whole"
        return {"annotate": [{"nodes": list(patterns), f"serialize_{what}_factor": factor, **said}]}

    return cut


def _cut_lookups(name: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    return _cut(name, "lookup", _WORD_TABLES)


def _cut_projection(name: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    mode = {"serialize_matmul_mode": "output_channels"}
    return _cut(name, "matmul", _PROJECTIONS, **mode)


def _recomputed(table: HostTable) -> Mapping[str, object] | str:
    if not table["recompute_checkpoint_every_layer"]:
        return "nothing is computed again"
    pipelined = len(_layers(table)) > 1
    return {"auto_recomputation": "pipeline" if pipelined else "recompute_all"}


def _anchor(table: HostTable) -> Mapping[str, object] | str:
    mode = table["output_mode"]
    if not table.trains:
        return {"default_anchor": "all"}
    return {"default_anchor": "final" if mode == "default" else mode}


def _loss_scaling(table: HostTable) -> Mapping[str, object] | str:
    if not table["auto_loss_scaling"]:
        return "the loss is scaled as the training file says"
    return {f"{TRAIN}optimizer.automatic_loss_scaling": {}}


def _implied(table: HostTable) -> Mapping[str, object]:
    """The settings that `IPUConfig.to_options` makes in any case."""
    always = {
        "enable_outlining": True,
        "outline_threshold": 10.0,
        "subgraph_copying_strategy": "just_in_time",
    }
    if not table.trains:
        return always
    several = len(_layers(table)) > 1
    pipelined = {
        "accumulate_outer_fragment_schedule": "overlap_memory_optimized",
        "accumulate_outer_fragment_excluded_virtual_graphs": (0,),
    }
    return {
        **always,
        "accumulation_and_replication_reduction_type": "mean",
        "enable_stochastic_rounding": True,
        "schedule_non_weight_update_gradient_consumers_early": True,
        **(pipelined if several else {}),
    }


_LOOKUPS: Final = (
    f"`annotate` with `serialize_lookup_factor`, for nodes {' or '.join(_WORD_TABLES)}"
)
_SCORES: Final = f"`annotate` with `serialize_matmul_factor`, for nodes {' or '.join(_PROJECTIONS)}"
_TOGETHER: Final = "as many parts as all chips have; they stay on the chip of the layer"
_OF_PYTHON: Final = Nothing("these are arguments of a Python model's parallelize")
_FILE: Final = Nothing("it says what wrote the file")
_NUMBER: Final = Maybe(_POSITIVE)
_FACTOR: Final = Maybe(Whole())  # files of early releases have 0 where nothing is cut
_TOTALS: Final = Maybe(OneOrMany(Whole()))
_SAME: Final = "the same of a program for inference"


def _in_parts(
    name: str, kind: Kind[Any], default: object, words: str, cut: Callable[[str], Any]
) -> tuple[HostKey, HostKey]:
    """A setting of programs that train, and the same of those for inference."""
    other = f"inference_{name}"
    return (
        HostKey(name, kind, default, Computed(words, for_training(cut(name)))),
        HostKey(other, kind, None, Computed(_SAME, for_inference(cut(other)))),
    )


_KEYS: Final = (
    HostKey("seed", Maybe(Whole()), None, Becomes("seed")),
    HostKey(
        "auto_loss_scaling", Truth(), False,
        Computed("`[optimizer] automatic_loss_scaling` of the training file",
                 for_training(_loss_scaling)),
    ),
    HostKey("executable_cache_dir", Plain(), "", CACHED),
    HostKey(
        "replication_factor", _POSITIVE, 1,
        Computed(
            "`replicated_graph_count` of a program that trains",
            for_training(lambda table: {"replicated_graph_count": table["replication_factor"]}),
        ),
    ),
    HostKey(
        "inference_replication_factor", _POSITIVE, 1,
        Computed(
            "`replicated_graph_count` of a program for inference",
            for_inference(
                lambda table: {"replicated_graph_count": table["inference_replication_factor"]}
            ),
        ),
    ),
    HostKey(
        "gradient_accumulation_steps", _POSITIVE, 1,
        Computed(
            "`accumulation_factor`",
            for_training(
                lambda table: {"accumulation_factor": table["gradient_accumulation_steps"]}
            ),
        ),
    ),
    HostKey(
        "layers_per_ipu", LAYERS, (-1,),
        Computed(
            "`layers_per_ipu`, with `num_ipus`, `virtual_graph_mode = auto` and "
            "`enable_pipelining`; for inference too if inference_layers_per_ipu is not given",
            lambda table: _placed(table)
            if table.trains or table["inference_layers_per_ipu"] is None
            else "inference_layers_per_ipu takes its place",
        ),
        always=True,
    ),
    HostKey(
        "inference_layers_per_ipu", Maybe(LAYERS), None,
        Computed("`layers_per_ipu` of a program for inference", for_inference(_placed)),
    ),
    HostKey(
        "ipus_per_replica", _NUMBER, None,
        Computed("`num_ipus`", for_training(_chips_agree("ipus_per_replica"))),
    ),
    HostKey(
        "inference_ipus_per_replica", _NUMBER, None,
        Computed(
            "`num_ipus` of a program for inference",
            for_inference(_chips_agree("inference_ipus_per_replica")),
        ),
    ),
    HostKey(
        "sharded_execution_for_inference", Truth(), False,
        Computed(
            "no `enable_pipelining` in a program for inference",
            for_inference(lambda _: "see layers_per_ipu, which says it too"),
        ),
    ),
    HostKey(
        "optimizer_state_offchip", Truth(), True,
        Computed(
            "`optimizer_state_tensor_location`: its storage, and with "
            "replicated_tensor_sharding its division among replicas",
            for_training(_state),
        ),
        always=True,
    ),
    HostKey(
        "replicated_tensor_sharding", Truth(), False,
        Computed(
            "`optimizer_state_tensor_location`, if there are several replicas",
            for_training(_sharding),
        ),
    ),
    HostKey(
        "matmul_proportion", _PROPORTIONS, 0.6,
        Computed(
            "`available_memory_proportion`, or `available_memory_per_ipu` for a list",
            _all_proportions,
        ),
    ),
    HostKey(
        "inference_matmul_proportion", Maybe(_PROPORTIONS), None,
        Computed(
            _SAME,
            for_inference(_proportions("inference_matmul_proportion")),
        ),
    ),
    HostKey(
        "enable_half_partials", Truth(), True,
        Computed("`partials_type` and `partials_type_matmuls`", _half_partials),
        always=True,
    ),
    *_in_parts("embedding_serialization_factor", _FACTOR, 1, _LOOKUPS, _cut_lookups),
    *_in_parts(
        "serialized_embedding_splits_per_ipu", _TOTALS, None, f"{_LOOKUPS}: {_TOGETHER}",
        _cut_lookups,
    ),
    *_in_parts("projection_serialization_factor", _FACTOR, 1, _SCORES, _cut_projection),
    *_in_parts(
        "serialized_projection_splits_per_ipu", _TOTALS, None, f"{_SCORES}: {_TOGETHER}",
        _cut_projection,
    ),
    HostKey(
        "recompute_checkpoint_every_layer", Truth(), False,
        Computed(
            "`auto_recomputation`: pipeline, which keeps what stages hand on, or recompute_all "
            "on one chip",
            for_training(_recomputed),
        ),
    ),
    HostKey(
        "device_iterations", _POSITIVE, 1,
        Computed(
            "`batches_per_step` of a program that trains",
            for_training(lambda table: {"batches_per_step": table["device_iterations"]}),
        ),
    ),
    HostKey(
        "inference_device_iterations", _POSITIVE, 1,
        Computed(
            "`batches_per_step` of a program for inference",
            for_inference(lambda table: {"batches_per_step": table["inference_device_iterations"]}),
        ),
    ),
    HostKey(
        "output_mode", EnumMember("all", "sum", "final", "default"), "final",
        Computed("`default_anchor`; all in a program for inference", _anchor),
        always=True,
    ),
    HostKey(
        "explicit_ir_inference", Truth(), False,
        Nothing("host transfers, loops and recomputation are always explicit"),
    ),
    HostKey("parallelize_kwargs", Maybe(Anything()), None, _OF_PYTHON),
    HostKey("inference_parallelize_kwargs", Maybe(Anything()), None, _OF_PYTHON),
    HostKey(
        "execute_encoder_on_cpu_for_generation", Truth(), False,
        Refused("Optimum itself refuses it"),
    ),
    HostKey(
        "enable_half_first_order_momentum", Truth(), False,
        Nothing("Optimum has dropped it: accl1_type of the training file's optimizer says it"),
    ),
    HostKey("name", Plain(), "", _FILE, silent=True),
    HostKey("optimum_version", Maybe(Plain()), None, _FILE, silent=True),
    HostKey("transformers_version", Maybe(Plain()), None, _FILE, silent=True),
)  # fmt: skip

OPTIMUM: Final = Dialect(
    "optimum",
    "Optimum's IPUConfig",
    # Any of them may have a value for each kind of pod.
    tuple(replace(key, kind=PerPod(key.kind)) for key in _KEYS),
    implied=_implied,
    implied_by="to_options",
)
