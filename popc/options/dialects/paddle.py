"""Paddle's IpuStrategy, BuildStrategy and ExecutionStrategy.

The settings of an IpuStrategy are by their own names, as its set_..._config methods take them;
those of the other two in the tables ``build_strategy`` and ``exec_strategy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.options.dialects.dialect import (
    Becomes,
    Computed,
    Dialect,
    Fate,
    HostKey,
    HostTable,
    Nothing,
    Refused,
)
from popc.options.dialects.kinds import Anything, Maybe, Plain
from popc.options.dialects.paddle_options import OPTIONS, replicas_of
from popc.options.kinds import Truth, Whole

__all__ = ["PADDLE"]

_POSITIVE: Final = Whole(low=1)


def _chips(table: HostTable) -> Mapping[str, object] | str:
    chips, rest = divmod(table["num_ipus"], replicas_of(table))
    if rest:
        return "see replicated_graph_count, which says what is wrong"
    if chips == 1:
        return {"num_ipus": 1}
    mode = "manual" if table["enable_manual_shard"] else "auto"
    return {"num_ipus": chips, "virtual_graph_mode": mode}


def _trains(table: HostTable) -> Mapping[str, object] | str:
    if table["is_training"] == table.trains:
        return "the training file, or its absence, says the same"
    if table.trains:
        return "the program trains all the same, for a training file is given"
    return "a program trains if a training file names loss and optimizer: --train FILE"


def _accumulates(table: HostTable) -> Mapping[str, object] | str:
    if not table["enable_gradient_accumulation"]:
        return "enable_gradient_accumulation is false"
    if not table.trains:
        return "it is for programs that train, and this one does not"
    return {"accumulation_factor": table["accumulation_factor"]}


def _replicas(table: HostTable) -> Mapping[str, object] | str:
    places = table["with_data_parallel.places"]
    count = len(places) if isinstance(places, list | tuple) else places
    return {"replicated_graph_count": count} if count else "one replica is enough"


def _loss_mean(table: HostTable) -> Mapping[str, object] | str:
    """The reduction of the gradients of replicas."""
    if not table.trains:
        return "it is for programs that train, and this one does not"
    if isinstance(_replicas(table), str):
        return "there is one replica"
    kind = str(table["build_strategy.gradient_scale_strategy"]).rpartition(".")[2].lower()
    reduction = {"coeffnumdevice": "mean", "one": "sum"}.get(kind)
    if reduction is None:
        return "popc knows CoeffNumDevice and One only"
    return {"replica_reduction_type": reduction}


def _shared_statistics(table: HostTable) -> Mapping[str, object] | str:
    outcome = _replicas(table)
    if not table["build_strategy.sync_batch_norm"] or isinstance(outcome, str):
        return "each replica has statistics of its own"
    return {"distributed_batch_norm_replica_group_size": outcome["replicated_graph_count"]}


_ALWAYS: Final = Nothing("popc fuses what can be fused; pattern_switches says what not")
_ONE_PROCESS: Final = Refused("mpiexec says how many processes divide the replicas of an archive")
_THREADS: Final = Nothing("popc_runtime.load(threads=...) says how many threads a run has")
_ORDER: Final = Nothing("a program runs in one order, which scheduling_algorithm chooses")


def _build(**fates: Fate) -> tuple[HostKey, ...]:
    return tuple(
        HostKey(f"build_strategy.{name}", Truth(), False, fate) for name, fate in fates.items()
    )


_IPU: Final = (
    HostKey("num_ipus", _POSITIVE, 1,
            Computed("`num_ipus`, and `virtual_graph_mode` if there are several", _chips)),
    HostKey("is_training", Truth(), True,
            Computed("what --train FILE says", _trains)),
    HostKey("micro_batch_size", _POSITIVE, 1, Becomes("batch_size")),
    HostKey("enable_manual_shard", Truth(), False,
            Computed("`virtual_graph_mode = manual`, with num_ipus",
                     lambda _: "see num_ipus, which says it too")),
    HostKey("enable_pipelining", Truth(), False, Becomes("enable_pipelining")),
    HostKey("batches_per_step", _POSITIVE, 1, Becomes("batches_per_step")),
    HostKey("enable_gradient_accumulation", Truth(), False,
            Computed("whether accumulation_factor counts",
                     lambda _: "see accumulation_factor, which says it too")),
    HostKey("accumulation_factor", _POSITIVE, 1,
            Computed("`accumulation_factor`, with enable_gradient_accumulation", _accumulates)),
    HostKey("enable_fp16", Truth(), False,
            Computed("`precision = float16`",
                     lambda table: {"precision": "float16"} if table["enable_fp16"]
                     else "the program computes in the types of the model")),
)  # fmt: skip

_DATA_PARALLEL: Final = (
    HostKey("with_data_parallel.loss_name", Maybe(Plain()), None,
            Nothing("the training file names the loss")),
    HostKey("with_data_parallel.share_vars_from", Maybe(Plain()), None,
            Nothing("an Evaluation copies the weights of the program that trains")),
    HostKey("with_data_parallel.places", Maybe(Anything()), None,
            Computed("`replicated_graph_count`: how many there are", _replicas)),
)  # fmt: skip

_BUILD: Final = (
    *_build(
        build_cinn_pass=_ALWAYS,
        enable_addto=Nothing("the planner adds in place where it can"),
        enable_auto_fusion=_ALWAYS,
        enable_backward_optimizer_op_deps=_ORDER,
        enable_sequential_execution=_ORDER,
        fuse_bn_act_ops=_ALWAYS,
        fuse_bn_add_act_ops=_ALWAYS,
        fuse_elewise_add_act_ops=_ALWAYS,
        fuse_gemm_epilogue=_ALWAYS,
        fuse_relu_depthwise_conv=_ALWAYS,
        fused_attention=_ALWAYS,
        fused_feedforward=_ALWAYS,
        remove_unnecessary_lock=Nothing("replicas share no locks"),
    ),
    HostKey("build_strategy.fuse_all_optimizer_ops", Truth(), False,
            Computed("`merge_var_update = all`", lambda table: {"merge_var_update": "all"}
                     if table["build_strategy.fuse_all_optimizer_ops"] and table.trains
                     else "weights are updated one by one")),
    HostKey("build_strategy.fuse_all_reduce_ops", Truth(), False,
            Becomes("merge_all_reduce_collectives")),
    HostKey("build_strategy.fuse_broadcast_ops", Truth(), False,
            Becomes("merge_all_gather_collectives")),
    HostKey("build_strategy.enable_inplace", Truth(), True, Becomes("enable_inplace")),
    HostKey("build_strategy.memory_optimize", Maybe(Truth()), None,
            Nothing("memory is always planned")),
    HostKey("build_strategy.sync_batch_norm", Truth(), False,
            Computed("`distributed_batch_norm_replica_group_size`: all replicas",
                     _shared_statistics)),
    HostKey("build_strategy.gradient_scale_strategy", Plain(), "CoeffNumDevice",
            Computed("`replica_reduction_type`: mean for CoeffNumDevice, sum for One",
                     _loss_mean), always=True),
    HostKey("build_strategy.reduce_strategy", Plain(), "AllReduce",
            Nothing("gradients are all-reduced; optimizer_state_tensor_location divides what "
                    "updates them among replicas")),
    HostKey("build_strategy.debug_graphviz_path", Plain(), "",
            Nothing("--emit-dot DIR draws the graph")),
    HostKey("build_strategy.num_trainers", _POSITIVE, 1, _ONE_PROCESS),
    HostKey("build_strategy.trainer_id", Whole(), 0, _ONE_PROCESS),
    HostKey("build_strategy.*", Anything(), None,
            Nothing("popc has passes of its own")),
)  # fmt: skip


_EXECUTION: Final = (
    HostKey("exec_strategy.num_threads", Whole(), 0, _THREADS),
    HostKey("exec_strategy.num_iteration_per_run", _POSITIVE, 1, Becomes("batches_per_step")),
    HostKey("exec_strategy.num_iteration_per_drop_scope", Whole(), 100,
            Nothing("a program has all its memory from load on")),
    HostKey("exec_strategy.allow_op_delay", Truth(), False, _ORDER),
    HostKey("exec_strategy.*", Anything(), None, _ORDER),
)  # fmt: skip

PADDLE: Final = Dialect(
    "paddle",
    "Paddle's IpuStrategy",
    (*_IPU, *OPTIONS, *_DATA_PARALLEL, *_BUILD, *_EXECUTION),
)
