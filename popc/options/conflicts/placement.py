"""Options about chips and pipelines that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from popc.options.conflicts.steps import anchors_given
from popc.options.groups.placement import VirtualGraphMode
from popc.options.groups.recomputation import AutoRecomputation
from popc.options.options import Options
from popc_runtime.format import ReturnType

__all__ = ["conflicts", "ignored_places", "pipeline_training_conflicts"]


_NEED_PIPELINING: Final = (
    "accumulate_outer_fragment_schedule",
    "accumulate_outer_fragment_excluded_virtual_graphs",
    "pipeline_schedule",
    "stash_all_tensors_inference_pipeline",
)


def conflicts(options: Options) -> Iterator[str]:
    """Chips and pipelines that cannot be, each with its remedy."""
    yield from _about_chips(options)
    if options.enable_pipelining:
        yield from _about_pipelines(options)
    else:
        for name in _NEED_PIPELINING:
            if name in options.origins:
                yield f"{name} is about pipelines, but enable_pipelining is false: set it too"
        if options.auto_recomputation is AutoRecomputation.PIPELINE:
            yield (
                "auto_recomputation is pipeline, which computes the stages of a pipeline once "
                "more, but enable_pipelining is false: set it, or choose standard or recompute_all"
            )
    ignored = ignored_places(options)
    for number, rule in enumerate(options.annotate):
        for name, _ in rule.settings:
            if name in ignored:
                yield f"annotate[{number}].{name} would have no effect: {ignored[name]}"
        if rule.on_virtual_graph is not None and options.virtual_graph_mode is VirtualGraphMode.OFF:
            yield f"annotate[{number}].on_virtual_graph names a chip, but virtual_graph_mode is off"
        if rule.on_pipeline_stage is not None and not options.enable_pipelining:
            yield (
                f"annotate[{number}].on_pipeline_stage names a stage, but enable_pipelining is "
                "false"
            )


def _about_chips(options: Options) -> Iterator[str]:
    ratios, layers = options.virtual_graph_split_ratios, options.layers_per_ipu
    yield from _about_mapping(options)
    is_auto = options.virtual_graph_mode is VirtualGraphMode.AUTO
    yield from _about_division(options, "virtual_graph_split_ratios", ratios, "ratios")
    if ratios and not sum(ratios) > 0:
        yield "virtual_graph_split_ratios are all zero: give at least one chip something to do"
    if layers and ratios and is_auto:
        yield "layers_per_ipu and virtual_graph_split_ratios both divide the model: give one"
    else:
        yield from _about_division(options, "layers_per_ipu", layers, "layers")
    if is_auto and options.num_ipus == 1:
        yield (
            "virtual_graph_mode is auto, but num_ipus is 1: set num_ipus to the number of chips, "
            "or leave virtual_graph_mode off"
        )


def _about_division(
    options: Options, name: str, numbers: Sequence[float], what: str
) -> Iterator[str]:
    """An option that has a number for each chip among which the model is divided."""
    mode = options.virtual_graph_mode
    if numbers and mode is not VirtualGraphMode.AUTO:
        yield (
            f"{name} divides the model, but virtual_graph_mode is {mode}: set "
            f"virtual_graph_mode=auto, or leave the {what} out"
        )
    elif numbers and len(numbers) != options.number_of_parts:
        mapped = bool(options.device_mapping)
        there_are = (
            f"device_mapping has {options.number_of_parts}"
            if mapped
            else f"num_ipus is {options.num_ipus}"
        )
        yield (
            f"{name} has {len(numbers)} numbers, but {there_are}: give one number for each "
            f"{'stage' if mapped else 'chip'}"
        )


def _about_mapping(options: Options) -> Iterator[str]:
    mapping, mode = options.device_mapping, options.virtual_graph_mode
    if not mapping:
        return
    if mode is not VirtualGraphMode.AUTO:
        yield (
            f"device_mapping says where the parts of a model go, but virtual_graph_mode is {mode}: "
            "set virtual_graph_mode=auto, or place nodes by annotations"
        )
    beyond = [chip for chip in mapping if chip >= options.num_ipus]
    if beyond:
        yield (
            f"device_mapping names chip {max(beyond)}, but num_ipus is {options.num_ipus}: chips "
            "are counted from 0"
        )
    if len(set(mapping)) < len(mapping) and not options.enable_pipelining:
        yield (
            "device_mapping names a chip twice, but without enable_pipelining a chip has one "
            "part: set it, or name each chip once"
        )


def _about_pipelines(options: Options) -> Iterator[str]:
    mode = options.virtual_graph_mode
    if mode is VirtualGraphMode.OFF:
        yield (
            "enable_pipelining needs chips to run the stages, but virtual_graph_mode is off: set "
            "virtual_graph_mode=manual or auto"
        )
    elif mode is VirtualGraphMode.EXECUTION_PHASES:
        yield (
            "enable_pipelining lets stages overlap, but virtual_graph_mode is execution_phases, "
            "which run one after the other: choose one of them"
        )
    if options.num_ipus == 1:
        yield (
            "enable_pipelining needs at least two chips, but num_ipus is 1: set num_ipus to the "
            "number of chips"
        )
    for what, anchor in anchors_given(options):
        if anchor.type is ReturnType.EVERY_N:
            yield (
                f"{what}: every_n does not go with enable_pipelining: return all values, or the "
                "final one"
            )
    auto = options.auto_recomputation
    if options.stash_all_tensors_inference_pipeline and auto is not AutoRecomputation.PIPELINE:
        yield (
            "stash_all_tensors_inference_pipeline keeps what auto_recomputation=pipeline would "
            f"compute once more, but auto_recomputation is {auto}: leave "
            "one of them out, or set both"
        )


def pipeline_training_conflicts(options: Options) -> Iterator[str]:
    """The limits of a pipeline that trains; `conflicts` are those of all programs."""
    if options.accumulation_factor == 1:
        yield (
            "enable_pipelining trains on several micro-batches at a time, but accumulation_factor "
            "is 1: weights would be updated while later micro-batches still need the old ones; "
            "set accumulation_factor to at least the number of stages, forward and backward"
        )


def ignored_places(options: Options) -> dict[str, str]:
    """The annotations of place that have no effect with these options, and why."""
    mode = options.virtual_graph_mode
    found: dict[str, str] = {}
    if mode is VirtualGraphMode.OFF:
        found["virtual_graph"] = "virtual_graph_mode is off"
    elif mode is VirtualGraphMode.AUTO:
        found["virtual_graph"] = "virtual_graph_mode is auto"
    if not options.enable_pipelining:
        found["pipeline_stage"] = "enable_pipelining is false"
    if mode is not VirtualGraphMode.EXECUTION_PHASES:
        found["execution_phase"] = "virtual_graph_mode is not execution_phases"
    return found
