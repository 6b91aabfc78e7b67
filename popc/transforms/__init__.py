"""Graph -> graph: the ordered passes."""

from popc.transforms.base import Pass, PassReport, RewritePass
from popc.transforms.check_replicas import check_replicas
from popc.transforms.outlining import Outlining
from popc.transforms.pipeline import (
    Phase,
    build_pipeline,
    cut_before_gradients,
    excludable_passes,
    optional_passes,
    prepare_for_training,
    transform,
)
from popc.transforms.variable_groups import set_variable_groups

__all__ = [
    "Outlining",
    "Pass",
    "PassReport",
    "Phase",
    "RewritePass",
    "build_pipeline",
    "check_replicas",
    "cut_before_gradients",
    "excludable_passes",
    "optional_passes",
    "prepare_for_training",
    "set_variable_groups",
    "transform",
]
