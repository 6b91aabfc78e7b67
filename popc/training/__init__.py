"""From a model to a training step: the loss, its gradients, and what updates the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.training.build import add_training, require_weights
    from popc.training.names import needed_names, training_anchors
    from popc.training.preparation import rewrite_before_training
    from popc.training.settings import (
        TrainingSettings,
        parse_training,
        read_training_file,
        with_requests,
    )
    from popc.training.state import add_state, resume_state

__all__ = [
    "TrainingSettings",
    "add_state",
    "add_training",
    "needed_names",
    "parse_training",
    "read_training_file",
    "require_weights",
    "resume_state",
    "rewrite_before_training",
    "training_anchors",
    "with_requests",
]

# Most compilations do not train.
__getattr__ = lazy_names(
    __name__,
    {
        "TrainingSettings": "popc.training.settings",
        "add_state": "popc.training.state",
        "add_training": "popc.training.build",
        "needed_names": "popc.training.names",
        "parse_training": "popc.training.settings",
        "read_training_file": "popc.training.settings",
        "require_weights": "popc.training.build",
        "resume_state": "popc.training.state",
        "rewrite_before_training": "popc.training.preparation",
        "training_anchors": "popc.training.names",
        "with_requests": "popc.training.settings",
    },
)
