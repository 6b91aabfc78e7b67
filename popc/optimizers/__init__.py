"""PopART's optimizers: their settings, and the ops that update weights with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
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

# Most compilations do not train.
__getattr__ = lazy_names(
    __name__,
    {
        "ACCUMULATED": "popc.optimizers.build",
        "Adam": "popc.optimizers.spec",
        "Adaptive": "popc.optimizers.spec",
        "AutomaticLossScaling": "popc.optimizers.spec",
        "ClipNorm": "popc.optimizers.spec",
        "Division": "popc.optimizers.update",
        "GradientMap": "popc.optimizers.spec",
        "Merging": "popc.optimizers.merging",
        "OPTIMIZER_TYPES": "popc.optimizers.parse",
        "OptimizerSpec": "popc.optimizers.spec",
        "SGD": "popc.optimizers.spec",
        "STATE_PREFIXES": "popc.optimizers.build",
        "Sharing": "popc.optimizers.update",
        "Specific": "popc.optimizers.spec",
        "UpdateContext": "popc.optimizers.build",
        "UpdateResult": "popc.optimizers.build",
        "UpdatedWeight": "popc.optimizers.build",
        "Value": "popc.optimizers.values",
        "add_loss_scale_update": "popc.optimizers.loss_scaling",
        "add_updates": "popc.optimizers.build",
        "loss_scale": "popc.optimizers.loss_scaling",
        "optimizer_to_mapping": "popc.optimizers.parse",
        "parse_optimizer": "popc.optimizers.parse",
        "replacement_problem": "popc.optimizers.replacement",
    },
)
