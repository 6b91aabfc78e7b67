"""The settings of a session, as options of popc."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import onnx

from popc.options import Options
from popc.options.dialects.popart_patterns import PATTERNS
from popc.options.table import FrozenTable
from popc.popart.dataflow import DataFlow
from popc.popart.device_info import DeviceInfo
from popc.popart.engine_options import engine_values
from popc.popart.enums import (
    AnchorReturnTypeId,
    CommGroupType,
    DeviceType,
    ExchangeStrategy,
    NativeEnum,
    ReplicatedStreamMode,
    TileSet,
)
from popc.popart.locations import TensorLocation, TensorLocationSettings
from popc.popart.logger import log_once
from popc.popart.optimizer_table import literal
from popc.popart.option_enums import VirtualGraphMode
from popc.popart.options import SessionOptions
from popc.popart.options_table import Treatment
from popc.popart.patterns import Patterns
from popc.popart.records import Record
from popc.request import make_options

__all__ = [
    "accumulation_of",
    "highest_virtual_graph",
    "options_of",
    "pipelines_with",
    "replicas_of",
]

_EXCHANGE: Final = {
    ExchangeStrategy.OverlapInnerLoop: "overlap_inner_loop",
    ExchangeStrategy.OverlapLoops: "overlap_loops",
    ExchangeStrategy.OverlapStep: "overlap_loops",
}
_GROUPS: Final = {
    CommGroupType.All: "all",
    CommGroupType.Consecutive: "consecutive",
    CommGroupType.Orthogonal: "orthogonal",
    CommGroupType.Ungrouped: "none",
}
# Operands of recurrent layers and their batches, by domain and operator.
_RECURRENT: Final = ((0, 1), (4, 0), (5, 1), (6, 1))
_BATCH_AXES: Final = {
    **{("", kind): _RECURRENT for kind in ("GRU", "LSTM", "RNN")},
    ("ai.graphcore", "LSTM"): ((0, 1), (3, 1)),
}
_LARGEST: Final = 2.0**48 - 1  # of an option's numbers
_LOCATION: Final = ("storage", "loadTileSet", "storageTileSet", "replicatedTensorSharding")
_LEAST: Final = ("minElementsForOffChip", "minElementsForReplicatedTensorSharding")
_OF_DEVICE: Final = ("num_ipus", "num_io_tiles")  # what a device decides, and not a user
_ACTIVATIONS: Final = "activationTensorLocationSettings"  # replicas do not divide these
_ALONE: Final = ("none", "consecutive:1", "orthogonal:1")  # groups of one replica
# Members that are no option of popc by their own name.
_APART: Final = (
    *("enableGradientAccumulation", "enableReplicatedGraphs"),
    *("accumulationFactor", "replicatedGraphCount", "convolutionOptions"),
)


def replicas_of(options: SessionOptions) -> int:
    """The number of replicas of one process."""
    return int(options.replicatedGraphCount) if options.enableReplicatedGraphs else 1


def accumulation_of(options: SessionOptions) -> int:
    """The number of micro-batches that an update of the weights takes."""
    return int(options.accumulationFactor) if options.enableGradientAccumulation else 1


def options_of(
    options: SessionOptions,
    patterns: Patterns,
    flow: DataFlow,
    device: DeviceInfo,
    model: onnx.ModelProto,
    *,
    trains: bool,
) -> Options:
    """The options of popc that do what a session is asked for.

    Raises:
        OptionError: they contradict each other.
    """
    values: dict[str, Any] = {
        row.name: _plain(value)
        for row, value in options.treated(Treatment.MAPPED)
        if row.name not in _APART
    }
    for name in _without_effect(options, trains=trains):
        values.pop(name, None)
    partials = dict(options.convolutionOptions).get("partialsType")
    if partials:
        values["convolutionOptions.partialsType"] = partials
    pipelines = pipelines_with(options, trains=trains)
    if not pipelines:
        _forget_pipeline(values)
    _keep_possible_shards(values, options.getGlobalReplicationFactor())
    values.update(engine_values(options))
    values["accumulation_factor"] = accumulation_of(options)
    values["replicated_graph_count"] = options.getGlobalReplicationFactor()
    values["batches_per_step"] = flow.batchesPerStep()
    picks = picks_samples(options, trains=trains)
    values["anchors"] = {name: _anchor(flow, name, picks=picks) for name in flow.anchors()}
    _set_ipus(values, max(_ipus(options, device), 1 + highest_virtual_graph(options, model)))
    values["enable_inplace"] = "InPlace" not in patterns.disabled()
    values["pattern_switches"] = _switches(patterns)
    values["compression"] = "fast"
    if options.batchSerializationSettings.factor > 1:
        values["batch_serialization_axes"] = _batch_axes(model) or None
    _add_streams(values, flow, model)
    if not trains:
        _forget_training(values, pipelines=pipelines)
        if values.get("variable_settings"):  # constants cannot differ between replicas
            values["constantWeights"] = False
    found = make_options({name: value for name, value in values.items() if value is not None})
    # The device has these, but nobody has chosen a target for which orders are to be compared.
    told = {name: said for name, said in found.origins.items() if name not in _OF_DEVICE}
    return replace(found, origins=FrozenTable(told))


def _batch_axes(model: onnx.ModelProto) -> dict[str, int]:
    """The dimensions of inputs that are the batch, of those that recurrent layers read."""
    weights = {weight.name for weight in model.graph.initializer}
    names = {info.name for info in model.graph.input} - weights
    return {
        literal(name): axis
        for node in model.graph.node
        for place, axis in _BATCH_AXES.get((node.domain.removeprefix("ai.onnx"), node.op_type), ())
        for name in node.input[place : place + 1]
        if name in names
    }


def _switches(patterns: Patterns) -> dict[str, bool]:
    """The passes and rules of popc that are on or off otherwise than by default.

    One that does what several of PopART's patterns do is off when all of these are.
    """
    on = _rules_of(patterns)
    return {rule: rule in on for rule in sorted(on ^ _usual_rules())}


def _rules_of(patterns: Patterns) -> frozenset[str]:
    enabled = (rules for name, rules in PATTERNS.items() if patterns.isPatternEnabled(name))
    return frozenset(rule for rules in enabled for rule in rules)


@cache
def _usual_rules() -> frozenset[str]:
    return _rules_of(Patterns())


def pipelines_with(options: SessionOptions, *, trains: bool) -> bool:
    """True if micro-batches go through a pipeline.

    PopART also trains pipelines that update weights after each micro-batch, with gradients of
    weights that later ones have changed meanwhile; popc has no such stale gradients.
    """
    stale = trains and not options.enableGradientAccumulation
    if options.enablePipelining and stale:
        log_once(
            "session",
            "Without gradient accumulation popc trains one micro-batch after the other, not in a "
            "pipeline: results are those of training without stale weights",
        )
    return bool(options.enablePipelining) and not stale


def highest_virtual_graph(options: SessionOptions, model: onnx.ModelProto) -> int:
    """The highest number of a virtual graph that a node of the model is on; -1 if there is none."""
    if options.virtualGraphMode is not VirtualGraphMode.Manual:
        return -1
    graphs = [model.graph]
    numbers = [-1]
    while graphs:
        for node in graphs.pop().node:
            for attribute in node.attribute:
                if attribute.name == "__ipu_number":
                    numbers.append(attribute.i)
                elif attribute.HasField("g"):
                    graphs.append(attribute.g)
    return max(numbers)


def _forget_pipeline(values: dict[str, Any]) -> None:
    values.pop("enablePipelining", None)
    if values.get("autoRecomputation") == "pipeline":
        values.pop("autoRecomputation")


def _keep_possible_shards(values: dict[str, Any], replicas: int) -> None:
    """Divide only what replicas may have in common, where groups have several.

    Anything else is kept whole by each replica: that takes more memory, and gives the same results.
    """
    tables = {
        name: table for name, table in values.items() if name.endswith("TensorLocationSettings")
    }
    tables |= values.get("tensorLocationSettingsOverride", {})
    for name, table in tables.items():
        alone = replicas == 1 or table["shardingDomain"] in _ALONE
        if name == _ACTIVATIONS and table["replicatedTensorSharding"] and not alone:
            log_once("session", f"replicas have activations of their own: {name} divides nothing")
        if alone or name == _ACTIVATIONS:
            table["replicatedTensorSharding"] = 0
        if not table["replicatedTensorSharding"]:
            del table["shardingDomain"]


def _without_effect(options: SessionOptions, *, trains: bool) -> Iterator[str]:
    """Members that PopART passes over because what they are about is off."""
    if not pipelines_with(options, trains=trains):
        yield "accumulateOuterFragmentSettings"
        yield "stashAllTensorsInferencePipeline"
    if options.executionPhaseSettings.phases < 2:
        yield "executionPhaseSettings"
    if not options.enablePrefetchDatastreams:
        yield "bufferingDepthMap"
        yield "defaultBufferingDepth"
    if not options.enableReplicatedGraphs:
        yield "replicatedCollectivesSettings"
    if not options.instrumentWithHardwareCycleCounter:
        yield "hardwareInstrumentations"
    if options.swapLimitScheduler < 0:  # no limit, which the default is as well
        yield "swapLimitScheduler"
    if options.virtualGraphMode is not VirtualGraphMode.Auto:
        yield "virtualGraphSplitRatios"


def _forget_training(values: dict[str, Any], *, pipelines: bool) -> None:
    """Leave out what PopART passes over where nothing is trained."""
    values.pop("accumulation_factor")
    values.pop("mergeVarUpdate", None)
    if not pipelines or values.get("autoRecomputation") != "pipeline":
        values.pop("autoRecomputation", None)


def _plain(value: Any) -> Any:
    """A value as an options file has it."""
    if isinstance(value, NativeEnum):
        return _words(value.name)
    if isinstance(value, Record):
        return {name: _plain(content) for name, content in value.changed().items()}
    if isinstance(value, TensorLocation | TensorLocationSettings):
        return _location(value)
    if isinstance(value, Mapping):
        return {literal(name): _plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float) -> float:
    """The number that an option has; infinities are the largest numbers."""
    return math.copysign(_LARGEST, value) if math.isinf(value) else value


def _words(name: str) -> str:
    """``OnEnterAndExit`` as ``on_enter_and_exit``."""
    text = name.replace("IO", "Io").replace("NoRecompute", "None")
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in text).lstrip("_")


def _location(location: TensorLocation | TensorLocationSettings) -> dict[str, Any]:
    if isinstance(location, TensorLocationSettings):
        least = {name: getattr(location, name) for name in _LEAST}
        return {**_location(location.location), **least}
    domain = location.shardingDomain
    table = {name: getattr(location, name) for name in _LOCATION}
    plain: dict[str, Any] = {name: _words(member.name) for name, member in table.items()}
    plain["loadTileSet"], plain["storageTileSet"] = (
        tiles.name.lower() for tiles in (location.loadTileSet, location.storageTileSet)
    )
    plain["replicatedTensorSharding"] = int(location.replicatedTensorSharding)
    plain["shardingDomain"] = _group(domain.type, domain.replicaGroupSize)
    return plain


def _group(kind: CommGroupType, size: int) -> str:
    sized = kind in (CommGroupType.Consecutive, CommGroupType.Orthogonal)
    return f"{_GROUPS[kind]}:{size}" if sized else _GROUPS[kind]


def picks_samples(options: SessionOptions, *, trains: bool) -> bool:
    """True if the session picks one of so many samples itself, because the program cannot."""
    return accumulation_of(options) > 1 or pipelines_with(options, trains=trains)


def _anchor(flow: DataFlow, name: str, *, picks: bool) -> str:
    kind = flow.art(name)
    if kind.id() is AnchorReturnTypeId.EveryN:
        return "all" if picks else f"every_n:{kind.rp()}"
    return kind.id().name.lower()


def _ipus(options: SessionOptions, device: DeviceInfo) -> int:
    """The IPUs of one replica; without virtual graphs everything is on the first."""
    if options.virtualGraphMode is VirtualGraphMode.Off or device.type is DeviceType.Cpu:
        return 1
    return max(1, device.numIpus // replicas_of(options))


def _set_ipus(values: dict[str, Any], ipus: int) -> None:
    """Let the program have so many IPUs; a target has a power of two, the last of which rest."""
    of_target = 1 << (ipus - 1).bit_length()
    values["num_ipus"] = of_target
    if ipus == 1 and values.get("virtualGraphMode") == "auto":
        values.pop("virtualGraphMode")  # everything is on the one that there is
        values.pop("virtualGraphSplitRatios", None)
    if of_target > ipus and values.get("virtualGraphMode") == "auto":
        ratios = values.get("virtualGraphSplitRatios") or [1.0] * ipus
        values["virtualGraphSplitRatios"] = [*ratios, *[0.0] * (of_target - len(ratios))]


def _add_streams(values: dict[str, Any], flow: DataFlow, model: onnx.ModelProto) -> None:
    """The options about how inputs, anchors and variables are transferred and shared."""
    facts = {item.key: item.value for item in model.metadata_props}
    tiles, strategies, modes, groups = ({}, {}, {}, {})  # type: ignore[var-annotated]
    for name in (info.name for info in model.graph.input):
        _note(tiles, name, facts.get(f"__tile_set/{name}"), _tile_set)
        _note(strategies, name, facts.get(f"__exchange_strategy/{name}"), _strategy)
        _note(modes, name, facts.get(f"__replicated_stream_mode/{name}"), _mode)
    for name in flow.anchors():
        kind = flow.art(name)
        _note(tiles, name, str(int(kind.tileSet())), _tile_set)
        _note(strategies, name, str(int(kind.exchangeStrategy())), _strategy)
    for name in (weight.name for weight in model.graph.initializer):
        kind_text = facts.get(f"__comm_group_type/{name}")
        if kind_text is not None and int(kind_text):
            size = int(facts.get(f"__comm_group_size/{name}", "0"))
            groups[literal(name)] = _group(CommGroupType(int(kind_text)), size)
    tables = {
        "tile_sets": tiles,
        "exchange_strategies": strategies,
        "replicated_stream_mode": modes,
        "variable_settings": groups,
    }
    values.update({name: table for name, table in tables.items() if table})


def _note(
    table: dict[str, str], name: str, number: str | None, words: Callable[[int], str]
) -> None:
    text = "" if number is None else words(int(number))
    if text:
        table[literal(name)] = text


def _tile_set(number: int) -> str:
    return "io" if TileSet(number) is TileSet.IO else ""


def _strategy(number: int) -> str:
    return _EXCHANGE.get(ExchangeStrategy(number), "")


def _mode(number: int) -> str:
    mode = ReplicatedStreamMode(number)
    return "broadcast" if mode is ReplicatedStreamMode.Broadcast else ""
