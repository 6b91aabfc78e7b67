"""TensorFlow's IPUConfig (tensorflow.python.ipu.config), as nested tables or dotted names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from popc.options.dialects.common import NO_POPLAR
from popc.options.dialects.dialect import (
    Becomes,
    Computed,
    Dialect,
    HostKey,
    HostTable,
    Nothing,
)
from popc.options.dialects.kinds import Anything, EnumMember, OneOrMany, Plain
from popc.options.kinds import Number, Truth, Whole
from popc_runtime.format import OptionValue

__all__ = ["TENSORFLOW"]

_NO_HARDWARE: Final = Nothing("compiling attaches to no device; popc_runtime.load makes one")
_BYTES: Final = Whole()
_IDENTICAL: Final = "REPLICA_IDENTICAL_ONLY"
_FLOAT_BYTES: Final = 4  # sizes in bytes are of tensors of unknown type: float32 is the usual one


def _chips(table: HostTable) -> Mapping[str, object] | str:
    chosen = table["auto_select_ipus"]
    devices = chosen if isinstance(chosen, tuple) else (chosen,)
    return {"num_ipus": devices[0]} if devices else "one chip is enough"


def _recomputed(table: HostTable) -> Mapping[str, object] | str:
    if not table["allow_recompute"]:
        return "nothing is computed again"
    if not table.trains:
        return "a program for inference keeps nothing for a backward pass"
    pipelined = str(table.options.get("enable_pipelining", "false")).lower() in ("true", "1")
    return {"auto_recomputation": "pipeline" if pipelined else "standard"}


def _memory_of(family: str, *op_types: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    def made(table: HostTable) -> Mapping[str, object] | str:
        value = table[f"{family}.poplar_options.availableMemoryProportion"]
        if value is None:
            return "all ops have available_memory_proportion"
        return {"available_memory_by_op_type": dict.fromkeys(op_types, value)}

    return made


def _exceptions(table: HostTable) -> Mapping[str, object] | str:
    """The three kinds together, which one option takes."""
    prefix = "floating_point_behaviour."
    kinds = {"inv": "invalid", "div0": "div0", "oflo": "overflow"}
    every = table[f"{prefix}set_all"]
    wanted = tuple(word for key, word in kinds.items() if every or table[prefix + key])
    if not wanted:
        return "nothing is looked for"
    return {"enable_floating_point_checks": True, "floating_point_exceptions": wanted}


def _exception(name: str) -> Callable[[HostTable], Mapping[str, object] | str]:
    """All of `_exceptions`, said by the first that is given."""
    names = ("inv", "div0", "oflo", "set_all")

    def made(table: HostTable) -> Mapping[str, object] | str:
        given = [part for part in names if table.is_given(f"floating_point_behaviour.{part}")]
        return _exceptions(table) if given[:1] == [name] else "see the first of its kind"

    return made


def _everything(table: HostTable) -> Mapping[str, object] | str:
    outcome = _exception("set_all")(table)
    if not table["floating_point_behaviour.set_all"]:
        return outcome
    others = {"esr": "enable_stochastic_rounding", "nanoo": "nan_on_overflow"}
    rounding = {
        option: True
        for key, option in others.items()
        if not table.is_given(f"floating_point_behaviour.{key}")
    }
    if not rounding:
        return "see floating_point_behaviour.esr" if isinstance(outcome, str) else outcome
    return rounding if isinstance(outcome, str) else {**outcome, **rounding}


def _rounding(table: HostTable) -> Mapping[str, object] | str:
    prefix = "floating_point_behaviour."
    if table[f"{prefix}esr"] == _IDENTICAL:
        if not table.trains:
            return "nothing is updated"
        return {"annotate": [{"in_pass": "update", "stochastic_rounding": True}]}
    return {"enable_stochastic_rounding": table[f"{prefix}esr"] or table[f"{prefix}set_all"]}


def _nan_on_overflow(table: HostTable) -> Mapping[str, object] | str:
    prefix = "floating_point_behaviour."
    return {"nan_on_overflow": table[f"{prefix}nanoo"] or table[f"{prefix}set_all"]}


def _processes(table: HostTable) -> Mapping[str, object] | str:
    """A replica for each process that mpiexec is to start."""
    count = table["experimental.multi_replica_distribution.process_count"]
    if "replicated_graph_count" in table.options:
        return "replicated_graph_count says how many replicas processes divide among themselves"
    return {"replicated_graph_count": max(count, 1)}


def _io_tiles(table: HostTable) -> Mapping[str, object] | str:
    if not table["io_tiles.place_ops_on_io_tiles"]:
        return "transfers run on the tiles that compute"
    return {"tile_sets": {"*": "io"}}


def _io_memory(table: HostTable) -> Mapping[str, object] | str:
    if not table["io_tiles.num_io_tiles"]:
        return "no tiles are set aside"
    return {"io_tile_memory_proportion": table["io_tiles.available_memory_proportion"]}


def _merged(kind: str, key: str) -> Computed:
    merging, bound = f"merge_{kind}_collectives", f"merge_{kind}_bytes"

    def made(table: HostTable) -> Mapping[str, object] | str:
        most = table[key]
        return {merging: True, bound: most} if most else "each runs at once, which 0 means"

    return Computed(f"`{merging}` and `{bound}`, if it is larger than 0", made)


def _cluster(table: HostTable) -> Mapping[str, object] | str:
    most = table["optimizations.maximum_send_recv_cluster_size"]
    if not most:
        return "transfers are merged, whatever their size"
    return {"enable_merge_exchange": True, "merge_exchange_bytes": most}


def _least_remote(table: HostTable) -> Mapping[str, object] | str:
    elements = max(table["optimizations.minimum_remote_tensor_size"] // _FLOAT_BYTES, 1)
    kinds = ("activation", "weight", "optimizer_state", "accumulator")
    return {f"{kind}_tensor_location": {"min_elements_for_off_chip": elements} for kind in kinds}


def _gathers(table: HostTable) -> Mapping[str, object] | str:
    if table["optimizations.enable_gather_simplifier"]:
        return "they are on"
    rules = ("gathers_of_ranges", "split_gathers", "tied_gradients")
    return {"pattern_switches": dict.fromkeys(rules, False)}


def _target(name: str) -> Computed:
    def made(table: HostTable) -> Mapping[str, object] | str:
        return {"target": table[name]} if table[name] else "any target will do"

    return Computed("`target`", made)


def _devices(value: object) -> bool:
    return isinstance(value, tuple) and len(value) > 1


class _OneDevice(OneOrMany[int]):
    """Chips of one TensorFlow device."""

    def parse(self, value: object) -> int | tuple[int, ...]:
        """Several devices are refused: an archive is a program for one."""
        chips = super().parse(value)
        if _devices(chips):
            raise ValueError(
                f"is {list(chips if isinstance(chips, tuple) else [chips])}, several devices, but "
                "an archive is a program for one: compile one for each"
            )
        return chips


_VERSION: Final = EnumMember("ipu1", "ipu2")


class _Rounding(EnumMember):
    """A truth value, or a StochasticRoundingBehaviour: where results are rounded at random."""

    called: ClassVar[str] = "bool or choice"

    def parse(self, value: object) -> Any:
        """A truth value where it says the same."""
        if isinstance(value, bool) or str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        word = super().parse(value)
        return {"ON": True, "OFF": False}.get(word, word)

    def plain(self, value: Any) -> OptionValue:
        """The value as it is."""
        return bool(value) if isinstance(value, bool) else str(value)


class _Version(Plain):
    """The version of a chip, or none."""

    def parse(self, value: object) -> str:
        """One of the versions."""
        text = super().parse(value)
        return _VERSION.parse(text) if text else ""


_ROWS: Final = (
    HostKey("allow_recompute", Truth(), False,
            Computed("`auto_recomputation`: standard, or pipeline with enable_pipelining",
                     _recomputed)),
    HostKey("selection_order", EnumMember("AUTO", "ZIGZAG", "SNAKE", "HOOF"), "AUTO",
            Becomes("ipu_selection_order")),
    HostKey("serialization_output_folder", Plain(), "",
            Nothing("the archive is the serialised executable: -o names it")),
    HostKey("compilation_poplar_options.debug.allowOutOfMemory", Truth(), False,
            Becomes("allow_out_of_memory")),
    HostKey("compilation_poplar_options.*", Anything(), None, NO_POPLAR),
    HostKey("gcl_poplar_options.*", Anything(), None,
            Nothing("collectives are the runtime's own")),
    HostKey("auto_select_ipus", _OneDevice(Whole(low=1)), (), Computed("`num_ipus`", _chips)),
    HostKey("select_ipus", OneOrMany(Whole()), (),
            Nothing("no chip has a number of its own: auto_select_ipus says how many")),
    HostKey("convolutions.poplar_options.availableMemoryProportion", Number(high=1), None,
            Computed("`available_memory_by_op_type` of convolutions",
                     _memory_of("convolutions", "Conv", "ConvTranspose"))),
    HostKey("convolutions.poplar_options.partialsType", EnumMember("half", "float"), "float",
            Becomes("partials_type")),
    HostKey("convolutions.poplar_options.*", Anything(), None, NO_POPLAR),
    HostKey("device_connection.type",
            EnumMember("ALWAYS", "ON_DEMAND", "PRE_COMPILE", "NEVER"), "ALWAYS", _NO_HARDWARE),
    HostKey("device_connection.version", _Version(), "", _target("device_connection.version")),
    HostKey("device_connection.enable_remote_buffers", Truth(), False,
            Nothing("the target says whether there is streaming memory")),
    HostKey("experimental.always_rearrange_copies_on_the_host", Truth(), False,
            Nothing("samples have one order of elements, on the host and on the device")),
    HostKey("experimental.enable_prng_stability", Truth(), False,
            Nothing("what replicas share is always rounded alike in all of them")),
    HostKey("experimental.enable_remote_buffer_embedding", Truth(), False,
            Nothing("of every table that tensor_location_override keeps off chip, lookups fetch "
                    "and update rows alone")),
    HostKey("experimental.multi_replica_distribution.process_index", Whole(), 0,
            Nothing("the rank that mpiexec gives a process decides which replicas it runs")),
    HostKey("experimental.multi_replica_distribution.process_count", Whole(), 0,
            Computed("`replicated_graph_count`: one replica for each process, unless more are "
                     "asked for", _processes)),
    HostKey("floating_point_behaviour.inv", Truth(), False,
            Computed("`floating_point_exceptions`, with `enable_floating_point_checks`",
                     _exception("inv"))),
    HostKey("floating_point_behaviour.div0", Truth(), False,
            Computed("`floating_point_exceptions`, with `enable_floating_point_checks`",
                     _exception("div0"))),
    HostKey("floating_point_behaviour.oflo", Truth(), False,
            Computed("`floating_point_exceptions`, with `enable_floating_point_checks`",
                     _exception("oflo"))),
    HostKey("floating_point_behaviour.esr", _Rounding("OFF", "ON", _IDENTICAL), False,
            Computed("`enable_stochastic_rounding`; for updates of weights alone with "
                     f"{_IDENTICAL}", _rounding)),
    HostKey("floating_point_behaviour.nanoo", Truth(), False,
            Computed("`nan_on_overflow`", _nan_on_overflow)),
    HostKey("floating_point_behaviour.set_all", Truth(), False,
            Computed("all of the others", _everything)),
    HostKey("io_tiles.num_io_tiles", Whole(), 0, Becomes("num_io_tiles")),
    HostKey("io_tiles.place_ops_on_io_tiles", Truth(), False,
            Computed("`tile_sets`: io for all transfers", _io_tiles)),
    HostKey("io_tiles.available_memory_proportion", Number(high=1), 0.9,
            Computed("`io_tile_memory_proportion`, with `num_io_tiles`", _io_memory), always=True),
    HostKey("ipu_model.compile_ipu_code", Truth(), True, Nothing("there are no codelets")),
    HostKey("ipu_model.tiles_per_ipu", Whole(), 0, Becomes("tiles_per_ipu")),
    HostKey("ipu_model.version", _Version(), "ipu2", _target("ipu_model.version")),
    HostKey("matmuls.clear_pass_type", Truth(), False,
            Nothing("popc plans products itself, and knows the pass of each")),
    HostKey("matmuls.poplar_options.availableMemoryProportion", Number(high=1), None,
            Computed("`available_memory_by_op_type` of products",
                     _memory_of("matmuls", "MatMul", "Gemm"))),
    HostKey("matmuls.poplar_options.partialsType", EnumMember("half", "float"), "float",
            Becomes("partials_type_matmuls")),
    HostKey("matmuls.poplar_options.*", Anything(), None, NO_POPLAR),
    HostKey("norms.use_stable_statistics", Truth(), False, Nothing("statistics always are stable")),
    HostKey("norms.experimental.distributed_batch_norm_replica_group_size", Whole(low=1), 1,
            Becomes("distributed_batch_norm_replica_group_size")),
    HostKey("optimizations.prefetch_data_streams", Truth(), True,
            Becomes("enable_prefetch_datastreams")),
    HostKey("optimizations.combine_embedding_lookups", Truth(), False,
            Becomes("combine_embedding_lookups")),
    HostKey("optimizations.combine_matmuls", Truth(), False, Becomes("combine_matmuls")),
    HostKey("optimizations.enable_graph_outlining", Truth(), True, Becomes("enable_outlining"),
            always=True),
    HostKey("optimizations.merge_infeed_io_copies", Truth(), False, Becomes("group_host_sync")),
    HostKey("optimizations.maximum_cross_replica_sum_buffer_size", _BYTES, 0,
            _merged("all_reduce", "optimizations.maximum_cross_replica_sum_buffer_size")),
    HostKey("optimizations.maximum_reduce_scatter_buffer_size", _BYTES, 0,
            _merged("reduce_scatter", "optimizations.maximum_reduce_scatter_buffer_size")),
    HostKey("optimizations.maximum_all_gather_buffer_size", _BYTES, 0,
            _merged("all_gather", "optimizations.maximum_all_gather_buffer_size")),
    HostKey("optimizations.maximum_reduce_many_buffer_size", _BYTES, 0,
            Nothing("each reduction runs by itself")),
    HostKey("optimizations.enable_dynamic_slice_replacement", Truth(), True,
            Nothing("popc plans slices itself")),
    HostKey("optimizations.maximum_inter_ipu_copies_buffer_size", _BYTES, 0,
            Becomes("merge_ipu_copies_bytes")),
    HostKey("optimizations.maximum_send_recv_cluster_size", _BYTES, 0,
            Computed("`enable_merge_exchange` and `merge_exchange_bytes`", _cluster)),
    HostKey("optimizations.minimum_remote_tensor_size", _BYTES, 128,
            Computed("`min_elements_for_off_chip` of all locations, 4 bytes an element",
                     _least_remote)),
    HostKey("optimizations.merge_remote_buffers",
            EnumMember("NO_MERGING", "MERGE", "IF_BENEFICIAL"), "IF_BENEFICIAL",
            Nothing("parts that are outlined are handed what was fetched, so that they share their "
                    "code whatever buffer it was fetched from")),
    HostKey("optimizations.enable_gather_simplifier", Truth(), True,
            Computed("`pattern_switches` of what simplifies lookups", _gathers)),
    HostKey("optimizations.triangular_solve_expander_block_size", Whole(), 0,
            Nothing("ONNX has no triangular solver")),
    HostKey("optimizations.cholesky_block_size", Whole(), 0,
            Nothing("ONNX has no Cholesky factorisation")),
    HostKey("optimizations.enable_fast_math", Truth(), False,
            Becomes("enable_fast_math")),
    HostKey("pooling.poplar_options.*", Anything(), None, NO_POPLAR),
    HostKey("slices.poplar_options.availableMemoryProportion", Number(high=1), None,
            Computed("`available_memory_by_op_type` of lookups",
                     _memory_of("slices", "Gather", "ScatterND"))),
    HostKey("slices.poplar_options.*", Anything(), None, NO_POPLAR),
    HostKey("scheduling.algorithm",
            EnumMember("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"),
            "CHOOSE_BEST", Becomes("scheduling_algorithm")),
    HostKey("scheduling.maximum_scheduler_lookahead_depth", Whole(low=1), 5,
            Becomes("maximum_scheduler_lookahead_depth")),
    HostKey("scheduling.maximum_scheduler_search_space_size", Whole(low=1), 64,
            Becomes("maximum_scheduler_search_space_size")),
)  # fmt: skip

TENSORFLOW: Final = Dialect("tensorflow", "TensorFlow's IPUConfig", _ROWS)
