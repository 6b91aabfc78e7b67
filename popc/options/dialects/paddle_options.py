"""Settings of an IpuStrategy that `set_options` takes, beside those with methods of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from popc.options.dialects.common import CACHED, NO_POPLAR, for_training
from popc.options.dialects.dialect import TRAIN, Becomes, Computed, HostKey, HostTable, Nothing
from popc.options.dialects.kinds import Anything, Maybe, Plain
from popc.options.kinds import Kind, Number, Truth, Whole
from popc_runtime.format import OptionValue

__all__ = ["OPTIONS", "replicas_of"]

# PopART's numbers of choices, in order.
_RECOMPUTATION: Final = ("none", "standard", "norm_only", "pipeline", "recompute_all")
_COPYING: Final = ("on_enter_and_exit", "just_in_time")
_FRAGMENTS: Final = (
    "scheduler",
    "serial",
    "overlap_cycle_optimized",
    "overlap_memory_optimized",
)
_SCHEDULE: Final = Whole(high=len(_FRAGMENTS) - 1)
_CHIP: Final = Whole()
_STATE_TYPES: Final = {"FLOAT": "float32", "FLOAT16": "float16"}


class _Fragment(Kind[Mapping[int, tuple[int, ...]]]):
    """PopART's number of a schedule, and the chips that it is not for: {3: [0]}."""

    called: ClassVar[str] = "table"

    def parse(self, value: object) -> Mapping[int, tuple[int, ...]]:
        """The table with whole numbers, which are text as keys of JSON; it may be empty."""
        if not isinstance(value, Mapping) or len(value) > 1:
            raise ValueError(f"is {value!r}, but must be a table with one schedule, as {{3: [0]}}")
        return {
            self._part("a schedule", _SCHEDULE, number): self._chips(chips)
            for number, chips in value.items()
        }

    def _chips(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"has {value!r} where a list of chips must be, as in {{3: [0]}}")
        return tuple(self._part("a chip", _CHIP, chip) for chip in value)

    @staticmethod
    def _part(what: str, kind: Whole, value: object) -> int:
        try:
            return kind.parse(value)
        except ValueError as error:
            raise ValueError(f"has {what} that {error}") from None

    def plain(self, value: Mapping[int, tuple[int, ...]]) -> OptionValue:
        """The table as text."""
        return str(dict(value))


def replicas_of(table: HostTable) -> int:
    """The number of replicas, among which the chips are divided."""
    count: int = table["replicated_graph_count"]
    return count if table["enable_replicated_graphs"] else 1


def _replicated(table: HostTable) -> Mapping[str, object] | str:
    """Refuses, by ValueError, chips that replicas cannot share equally."""
    count, chips = replicas_of(table), table["num_ipus"]
    if chips % count:
        raise ValueError(
            f"does not fit num_ipus = {chips}, which are the chips of all replicas together: "
            f"give a multiple of {count}"
        )
    return {"replicated_graph_count": count} if count > 1 else "one replica is enough"


def _of_optimizer(name: str, values: Mapping[str, str] | None = None) -> Computed:
    def made(table: HostTable) -> Mapping[str, object] | str:
        value = table[name]
        if value in (None, ""):
            return "the training file says it"
        return {f"{TRAIN}optimizer.{name}": (values or {}).get(str(value), value)}

    return Computed(f"`[optimizer] {name}` of the training file", for_training(made))


def _half_partials(table: HostTable) -> Mapping[str, object] | str:
    if not table["enable_half_partial"]:
        return "sums are of float32"
    return {"partials_type": "half", "partials_type_matmuls": "half"}


def _memory(table: HostTable) -> Mapping[str, object] | str:
    value = table["available_memory_proportion"]
    return {"available_memory_proportion": value} if value else "0 stands for the usual one"


def _location(kind: str) -> Computed:
    name = f"location_{kind if kind != 'optimizer_state' else 'optimizer'}"
    option = f"{kind}_tensor_location"

    def made(table: HostTable) -> Mapping[str, object] | str:
        given = table[name] if isinstance(table[name], Mapping) else {}
        on_chip = bool(int(given.get("on_chip", 1)))
        shared = bool(int(given.get("use_replicated_tensor_sharding", 0)))
        sharing = {"replicated_tensor_sharding": True} if shared and replicas_of(table) > 1 else {}
        return {option: {"storage": "on_chip" if on_chip else "off_chip", **sharing}}

    return Computed(f"`{option}`", made if kind in ("weight", "activation") else for_training(made))


def _fragment(table: HostTable) -> Mapping[str, object] | str:
    """A schedule, and the chips that it is not for: {3: [0]}."""
    given = table["accumulate_outer_fragment"]
    if not given:
        return "updates are scheduled like anything else"
    ((number, chips),) = given.items()
    return {
        "accumulate_outer_fragment_schedule": _FRAGMENTS[number],
        "accumulate_outer_fragment_excluded_virtual_graphs": chips,
    }


def _partials(table: HostTable) -> Mapping[str, object] | str:
    given = table["convolution_options"]
    word = given.get("partialsType") if isinstance(given, Mapping) else None
    return {"partials_type": word} if word else "there is no Poplar underneath"


def _numbered(name: str, option: str, words: tuple[str, ...]) -> HostKey:
    most = len(words) - 1
    return HostKey(
        name,
        Whole(high=most),
        0,
        Computed(f"`{option}`, by PopART's numbers", lambda table: {option: words[table[name]]}),
    )


def _same(*names: str) -> tuple[HostKey, ...]:
    return tuple(HostKey(name, Truth(), False, Becomes(name)) for name in names)


_TABLE: Final = Maybe(Anything())

OPTIONS: Final = (
    HostKey("enable_replicated_graphs", Truth(), False,
            Computed("whether replicated_graph_count counts",
                     lambda _: "see replicated_graph_count, which says it too")),
    HostKey("replicated_graph_count", Whole(low=1), 1,
            Computed("`replicated_graph_count`, with enable_replicated_graphs; num_ipus are the "
                     "chips of all replicas", _replicated)),
    HostKey("need_avg_shard", Truth(), False,
            Nothing("virtual_graph_mode = auto divides a model by bytes")),
    HostKey("loss_scaling", Number(), None, _of_optimizer("loss_scaling")),
    HostKey("max_weight_norm", Number(), None,
            Nothing("max_weight_norm of the training file's optimizer says it")),
    HostKey("accl1_type", Maybe(Plain()), None, _of_optimizer("accl1_type", _STATE_TYPES)),
    HostKey("accl2_type", Maybe(Plain()), None, _of_optimizer("accl2_type", _STATE_TYPES)),
    HostKey("weight_decay_mode", Maybe(Plain()), None,
            _of_optimizer("weight_decay_mode", {"l2": "l2_regularization"})),
    HostKey("use_no_bias_optimizer", Truth(), False,
            Nothing("the training file names the optimizer: adam_no_bias, lamb_no_bias")),
    HostKey("enable_half_partial", Truth(), False,
            Computed("`partials_type` and `partials_type_matmuls`", _half_partials)),
    HostKey("convolution_options", _TABLE, None, Computed("`partials_type`", _partials)),
    HostKey("available_memory_proportion", Number(high=1), 0.0,
            Computed("`available_memory_proportion`", _memory)),
    HostKey("random_seed", Maybe(Whole()), None, Becomes("seed")),
    HostKey("default_prefetch_buffering_depth", Whole(), 0, Becomes("default_buffering_depth")),
    _numbered("auto_recomputation", "auto_recomputation", _RECOMPUTATION),
    _numbered("subgraph_copying_strategy", "subgraph_copying_strategy", _COPYING),
    HostKey("outline_threshold", Number(), 1.0, Becomes("outline_threshold")),
    HostKey("accumulate_outer_fragment", Maybe(_Fragment()), None,
            Computed("`accumulate_outer_fragment_schedule`, by PopART's numbers, and "
                     "`accumulate_outer_fragment_excluded_virtual_graphs`",
                     for_training(_fragment))),
    HostKey("location_optimizer", _TABLE, None, _location("optimizer_state")),
    HostKey("location_accumulator", _TABLE, None, _location("accumulator")),
    HostKey("location_weight", _TABLE, None, _location("weight")),
    HostKey("location_activation", _TABLE, None, _location("activation")),
    *_same("enable_outlining", "enable_stochastic_rounding", "enable_floating_point_checks"),
    HostKey("enable_prefetch_datastreams", Truth(), True, Becomes("enable_prefetch_datastreams")),
    *_same("schedule_non_weight_update_gradient_consumers_early"),
    HostKey("rearrange_anchors_on_host", Truth(), True,
            Nothing("samples have one order of elements, on the host and on the device")),
    HostKey("disable_grad_accumulation_tensor_streams", Truth(), False,
            Nothing("the host reads sums of gradients when it asks for them")),
    HostKey("enable_engine_caching", Truth(), False, CACHED),
    HostKey("cache_path", Plain(), "", CACHED),
    HostKey("compilation_progress_logger", _TABLE, None,
            Nothing("popc has its own passes, checks and progress")),
    HostKey("engine_options", _TABLE, None, NO_POPLAR),
)  # fmt: skip
