"""Losses added to a model for training: what the user says about them, and the ops they become."""

from popc.training.losses.add import add_loss
from popc.training.losses.parse import parse_loss
from popc.training.losses.spec import LOSS_TYPES, LossSpec

__all__ = ["LOSS_TYPES", "LossSpec", "add_loss", "parse_loss"]
