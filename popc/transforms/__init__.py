"""Graph -> graph: the ordered passes."""

from popc.transforms.base import Pass, PassReport, RewritePass
from popc.transforms.check_replicas import check_replicas
from popc.transforms.context import PassContext
from popc.transforms.pipeline import PIPELINE, PassPhase, excludable_passes, optional_passes
from popc.transforms.runner import (
    Transformation,
    cut_before_gradients,
    prepare_for_training,
    transform,
)
from popc.transforms.variable_groups import set_variable_groups

__all__ = [
    "PIPELINE",
    "Pass",
    "PassContext",
    "PassPhase",
    "PassReport",
    "RewritePass",
    "Transformation",
    "check_replicas",
    "cut_before_gradients",
    "excludable_passes",
    "optional_passes",
    "prepare_for_training",
    "set_variable_groups",
    "transform",
]
