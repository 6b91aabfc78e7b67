"""The chip, and the stage of a pipeline, that runs each op."""

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
from popc.placement.placing import follow_annotations, place, start_placement
from popc.placement.stages import infer_stages, last_stage, mirror_backward
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
