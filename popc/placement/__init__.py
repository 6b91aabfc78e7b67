"""The chip, and the stage of a pipeline, that runs each op."""

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.placement.check import check_places, check_stages, stage_chips
    from popc.placement.chips import (
        ChipsOfValues,
        chip_of_results,
        chip_of_variable,
        is_main_loop,
        main_graphs,
    )
    from popc.placement.copies import find_crossings, insert_copies, remove_boundaries
    from popc.placement.filling import fill_places, is_placed
    from popc.placement.placing import follow_annotations, place
    from popc.placement.stages import infer_stages, last_stage, mirror_backward
    from popc.placement.starting import start_placement
    from popc.placement.timing import Timing, time_stages

__all__ = [
    "ChipsOfValues",
    "Timing",
    "check_places",
    "check_stages",
    "chip_of_results",
    "chip_of_variable",
    "fill_places",
    "find_crossings",
    "follow_annotations",
    "infer_stages",
    "insert_copies",
    "is_main_loop",
    "is_placed",
    "last_stage",
    "main_graphs",
    "mirror_backward",
    "place",
    "remove_boundaries",
    "stage_chips",
    "start_placement",
    "time_stages",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ChipsOfValues": "popc.placement.chips",
        "Timing": "popc.placement.timing",
        "check_places": "popc.placement.check",
        "check_stages": "popc.placement.check",
        "chip_of_results": "popc.placement.chips",
        "chip_of_variable": "popc.placement.chips",
        "fill_places": "popc.placement.filling",
        "find_crossings": "popc.placement.copies",
        "follow_annotations": "popc.placement.placing",
        "infer_stages": "popc.placement.stages",
        "insert_copies": "popc.placement.copies",
        "is_main_loop": "popc.placement.chips",
        "is_placed": "popc.placement.filling",
        "last_stage": "popc.placement.stages",
        "main_graphs": "popc.placement.chips",
        "mirror_backward": "popc.placement.stages",
        "place": "popc.placement.placing",
        "remove_boundaries": "popc.placement.copies",
        "stage_chips": "popc.placement.check",
        "start_placement": "popc.placement.starting",
        "time_stages": "popc.placement.timing",
    },
)
