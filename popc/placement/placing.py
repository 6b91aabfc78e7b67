"""From annotations, or from the model as a whole, to a place for every op."""

from __future__ import annotations

from dataclasses import replace

from popc.ir import Graph, Op, StepPart
from popc.options import Options, VirtualGraphMode
from popc.placement.check import check_stages, check_updates
from popc.placement.copies import insert_copies
from popc.placement.filling import fill_places, is_placed
from popc.placement.phases import assign_phases
from popc.placement.sequences import number_sequences
from popc.placement.splitting import split_automatically
from popc.placement.stages import infer_stages
from popc.placement.updates import settle_stages

__all__ = ["follow_annotations", "place"]


def follow_annotations(graph: Graph) -> int:
    """Place what has been added to a graph that is placed; how many changes that took.

    Raises:
        OptionError: a variable would be written behind the stage that reads it.
    """
    if not is_placed(graph):
        return 0
    changes = fill_places(graph)
    if any(op.settings.pipeline_stage is not None for op in graph.ops):
        changes += settle_stages(graph)
        check_updates(graph)
    changes += number_sequences(graph)
    return changes + insert_copies(graph, boundaries=True)


def place(graph: Graph, options: Options, *, trains: bool) -> int:
    """Place the ops of a graph that is not placed yet; how many changes that took.

    Raises:
        OptionError: the graph cannot be divided as the options say.
    """
    if options.virtual_graph_mode is VirtualGraphMode.EXECUTION_PHASES:
        return _place_phases(graph, options)
    is_auto = options.virtual_graph_mode is VirtualGraphMode.AUTO
    if not is_auto or is_placed(graph) or _is_trained(graph):
        return 0
    changes = _split(graph, options, trains=trains)
    if options.device_mapping:
        _follow_mapping(graph, options)
    changes += fill_places(graph) + number_sequences(graph)
    if options.enable_pipelining:
        changes += infer_stages(graph) + fill_places(graph) + settle_stages(graph)
        check_stages(graph, options, trains=trains)
    return changes + insert_copies(graph, boundaries=True)


def _split(graph: Graph, options: Options, *, trains: bool) -> int:
    """Divide a model among chips, by layers or by bytes; how many ops it has."""
    if options.layers_per_ipu:
        from popc.placement.layers import split_by_layers

        return split_by_layers(graph, options.layers_per_ipu)
    return split_automatically(
        graph,
        options.number_of_parts,
        options.virtual_graph_split_ratios,
        accumulates=options.accumulation_factor > 1,
        trains=trains,
    )


def _follow_mapping(graph: Graph, options: Options) -> None:
    """Put the parts of a model, which are on chips in order, on the chips that they are meant for.

    In a pipeline each part is a stage.
    """
    for op in graph.ops:
        part = op.settings.virtual_graph
        if part is not None:
            stage = part if options.enable_pipelining else None
            chip = options.device_mapping[part]
            op.settings = replace(op.settings, virtual_graph=chip, pipeline_stage=stage)


def _place_phases(graph: Graph, options: Options) -> int:
    """Divide the model into execution phases, unless that has been done."""
    phased = {op.settings.execution_phase for op in graph.ops if op.outputs} - {None}
    if _is_trained(graph) or (phased and not any(map(_wants_phase, graph.ops))):
        return 0
    assign_phases(graph, options)
    changes = len(graph) + fill_places(graph) + number_sequences(graph)
    return changes + insert_copies(graph, boundaries=True)


def _wants_phase(op: Op) -> bool:
    return bool(op.inputs) and op.settings.virtual_graph is None


def _is_trained(graph: Graph) -> bool:
    return any(op.settings.part is not StepPart.FORWARD for op in graph.ops)
