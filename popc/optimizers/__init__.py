"""PopART's optimizers: their settings, and the ops that update weights with gradients."""

from popc.optimizers.build import (
    ACCUMULATED,
    STATE_PREFIXES,
    UpdateContext,
    UpdatedWeight,
    UpdateResult,
    add_updates,
)
from popc.optimizers.loss_scaling import add_loss_scale_update, loss_scale
from popc.optimizers.merging import Merging
from popc.optimizers.parse import OPTIMIZER_TYPES, optimizer_to_mapping, parse_optimizer
from popc.optimizers.replacement import replacement_problem
from popc.optimizers.spec import (
    SGD,
    Adam,
    Adaptive,
    AutomaticLossScaling,
    ClipNorm,
    GradientMap,
    OptimizerSpec,
    Specific,
)
from popc.optimizers.update import Division, Sharing
from popc.optimizers.values import Value

__all__ = [
    "ACCUMULATED",
    "OPTIMIZER_TYPES",
    "SGD",
    "STATE_PREFIXES",
    "Adam",
    "Adaptive",
    "AutomaticLossScaling",
    "ClipNorm",
    "Division",
    "GradientMap",
    "Merging",
    "OptimizerSpec",
    "Sharing",
    "Specific",
    "UpdateContext",
    "UpdateResult",
    "UpdatedWeight",
    "Value",
    "add_loss_scale_update",
    "add_updates",
    "loss_scale",
    "optimizer_to_mapping",
    "parse_optimizer",
    "replacement_problem",
]
