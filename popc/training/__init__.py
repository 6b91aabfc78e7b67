"""From a model to a training step: the loss, its gradients, and what updates the weights."""

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
