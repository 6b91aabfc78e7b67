"""Places that an imported model asks for: most ask for none, and no more is imported."""

from __future__ import annotations

from dataclasses import replace

from popc.ir import Graph
from popc.options import Options, VirtualGraphMode, placement_conflicts
from popc_runtime.errors import OptionError

__all__ = ["start_placement"]


def start_placement(graph: Graph, options: Options, *, trains: bool) -> None:
    """Check what an imported model is annotated with, and drop what has no effect.

    Raises:
        OptionError: lists everything that is wrong.
    """
    if options.virtual_graph_mode is VirtualGraphMode.EXECUTION_PHASES:
        from popc.placement.phases import check_phases

        check_phases(graph, options)
    # Once more: explanations leave one option out of a set in which all went together.
    conflicts = tuple(placement_conflicts(options))
    if conflicts:
        raise OptionError(
            "the placement options conflict",
            subject="virtual_graph_mode",
            details=conflicts,
        )
    keeps_chips = options.virtual_graph_mode is VirtualGraphMode.MANUAL
    for nested in graph.walk():
        for op in nested.ops:
            settings = op.settings
            chip = settings.virtual_graph if keeps_chips else None
            stage = settings.pipeline_stage if options.enable_pipelining else None
            phase = settings.execution_phase if options.has_phases else None
            kept = (chip, stage, phase)
            if kept != (settings.virtual_graph, settings.pipeline_stage, settings.execution_phase):
                op.settings = replace(
                    settings, virtual_graph=chip, pipeline_stage=stage, execution_phase=phase
                )
    if options.virtual_graph_mode is not VirtualGraphMode.OFF:
        _follow(graph, options, trains=trains)


def _follow(graph: Graph, options: Options, *, trains: bool) -> None:
    """Check places, and fill up those that are given by hand."""
    from popc.placement.check import check_places, check_stages
    from popc.placement.filling import fill_places
    from popc.placement.stages import infer_stages

    check_places(graph, options, trains=trains)
    if options.virtual_graph_mode is VirtualGraphMode.MANUAL:
        fill_places(graph)
        if options.enable_pipelining:
            infer_stages(graph)
            fill_places(graph)
        check_stages(graph, options, trains=trains)
