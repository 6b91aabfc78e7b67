"""Options about chips and pipelines that do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from popc.options.options import Options
from popc_runtime.format import ReturnType

__all__ = ["ignored_places", "placement_conflicts"]

_NEED_PIPELINING: Final = (
    "accumulate_outer_fragment_schedule",
    "accumulate_outer_fragment_excluded_virtual_graphs",
    "pipeline_schedule",
    "stash_all_tensors_inference_pipeline",
)


def placement_conflicts(options: Options) -> Iterator[str]:
    """What is wrong with the options as a whole, each problem with its remedy."""
    yield from _about_chips(options)
    if options.enable_pipelining:
        yield from _about_pipelines(options)
    else:
        for name in _NEED_PIPELINING:
            if name in options.origins:
                yield f"{name} is about pipelines, but enable_pipelining is false: set it too"
        if options.auto_recomputation == "pipeline":
            yield (
                "auto_recomputation is pipeline, which computes the stages of a pipeline once "
                "more, but enable_pipelining is false: set it, or choose standard or recompute_all"
            )
    ignored = ignored_places(options)
    for number, rule in enumerate(options.annotate):
        for name, _ in rule.settings:
            if name in ignored:
                yield f"annotate[{number}].{name} would have no effect: {ignored[name]}"


def _about_chips(options: Options) -> Iterator[str]:
    mode, ratios = options.virtual_graph_mode, options.virtual_graph_split_ratios
    if ratios and mode != "auto":
        yield (
            f"virtual_graph_split_ratios divides the model, but virtual_graph_mode is {mode}: set "
            "virtual_graph_mode=auto, or leave the ratios out"
        )
    elif ratios and len(ratios) != options.num_ipus:
        yield (
            f"virtual_graph_split_ratios has {len(ratios)} numbers, but num_ipus is "
            f"{options.num_ipus}: give one number for each chip"
        )
    if ratios and not sum(ratios) > 0:
        yield "virtual_graph_split_ratios are all zero: give at least one chip something to do"
    if mode == "auto" and options.num_ipus == 1:
        yield (
            "virtual_graph_mode is auto, but num_ipus is 1: set num_ipus to the number of chips, "
            "or leave virtual_graph_mode off"
        )


def _about_pipelines(options: Options) -> Iterator[str]:
    mode = options.virtual_graph_mode
    if mode == "off":
        yield (
            "enable_pipelining needs chips to run the stages, but virtual_graph_mode is off: set "
            "virtual_graph_mode=manual or auto"
        )
    elif mode == "execution_phases":
        yield (
            "enable_pipelining lets stages overlap, but virtual_graph_mode is execution_phases, "
            "which run one after the other: choose one of them"
        )
    if options.num_ipus == 1:
        yield (
            "enable_pipelining needs at least two chips, but num_ipus is 1: set num_ipus to the "
            "number of chips"
        )
    anchors = [(f"anchors of {name!r}", one) for name, one in options.anchors.items()]
    for what, anchor in (*anchors, ("default_anchor", options.default_anchor)):
        if anchor.type is ReturnType.EVERY_N:
            yield (
                f"{what}: every_n does not go with enable_pipelining: return all values, or the "
                "final one"
            )
    if options.stash_all_tensors_inference_pipeline and options.auto_recomputation != "pipeline":
        yield (
            "stash_all_tensors_inference_pipeline keeps what auto_recomputation=pipeline would "
            f"compute once more, but auto_recomputation is {options.auto_recomputation}: leave "
            "one of them out, or set both"
        )


def ignored_places(options: Options) -> dict[str, str]:
    """The annotations of place that have no effect with these options, and why."""
    mode = options.virtual_graph_mode
    found: dict[str, str] = {}
    if mode == "off":
        found["virtual_graph"] = "virtual_graph_mode is off"
    elif mode == "auto":
        found["virtual_graph"] = "virtual_graph_mode is auto"
    if not options.enable_pipelining:
        found["pipeline_stage"] = "enable_pipelining is false"
    return found
