"""Names that a user may anchor although the model does not have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from popc.autodiff import GRADIENT_PREFIX
from popc.training.settings import TrainingSettings

__all__ = ["needed_names", "training_anchors"]

# Prefixes of the tensors that training adds, as PopART reserves them.
_PREFIXES = (
    GRADIENT_PREFIX,
    "Accl___",
    "Accl1___",
    "Accl2___",
    "Accl3___",
    "Accum___",
    "AdamUpdater___",
    "AdaptiveUpdater___",
    "Counter___",
    "GlobalNorm___",
    "LambR1Sq___",
    "LambR2Sq___",
    "MappedGradient___",
    "Step___",
    "UpdatedVar___",
    "finalLossScale",
    "scaledLearningRate0___",
    "scaledLearningRate1___",
    "scaledWeightDecay1___",
    "weightDecayScaleFactor0___",
)


def training_anchors(anchors: Iterable[str], loss: str) -> tuple[list[str], list[str]]:
    """``anchors`` apart: those that the model must have, and those that training adds.

    ``loss`` is the name of the loss: it is an output in any case, and in neither list.
    """
    names = [name for name in anchors if name != loss]
    added = [name for name in names if name.startswith(_PREFIXES)]
    return [name for name in names if name not in added], added


def needed_names(
    settings: TrainingSettings, anchors: Iterable[str], known: Mapping[str, object]
) -> tuple[str, ...]:
    """Tensors of the model that the loss and the anchored gradients need.

    ``known`` are the names that the model has: a label that is none of them is a new input.
    """
    names = [settings.loss.input, settings.loss.weights, settings.loss.biases]
    names += [name for name in settings.loss.fed_tensors if name in known]
    names += [
        name.removeprefix(GRADIENT_PREFIX) for name in anchors if name.startswith(GRADIENT_PREFIX)
    ]
    return tuple(dict.fromkeys(name for name in names if name))
