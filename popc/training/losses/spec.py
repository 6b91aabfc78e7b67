"""The user's settings of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from popc.ops.loss import REDUCTIONS
from popc.options.suggest import did_you_mean
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["LOSS_TYPES", "LossSpec"]

_COMMON: Final = ("type", "input", "name", "reduction")
_OF_LABELS: Final = ("label", "label_dtype")
_OF_SAMPLES: Final = ("biases", "num_sampled", "num_true", "samples", "unique", "weights")
# The settings that each type has beside the common ones.
_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "cross_entropy": (*_OF_LABELS, "axis", "ignore_index", "weights"),
    "ctc": (
        *_OF_LABELS,
        "blank",
        "input_lengths",
        "label_lengths",
        "max_labels",
        "zero_infinity",
    ),
    "identity": (),
    "l1": ("label", "lambda_"),
    "mse": ("label",),
    "nce": (*_OF_LABELS, *_OF_SAMPLES),
    "nll": (*_OF_LABELS, "axis", "ignore_index", "log_probability"),
    "sampled_softmax": (*_OF_LABELS, *_OF_SAMPLES),
}
LOSS_TYPES: Final = tuple(_SETTINGS)
_SAMPLED: Final = frozenset({"nce", "sampled_softmax"})
_LABELLED: Final = frozenset({"cross_entropy", "ctc", "mse", "nll"}) | _SAMPLED


@frozen
class LossSpec:
    """A loss of a tensor of the model.

    Attributes:
        type: "cross_entropy": scores without a softmax, by class labels.  "nll": probabilities, by
            class labels.  "ctc": logarithms of probabilities [T, N, C], by sequences of labels.
            "mse": the squared difference from a target.  "l1": the absolute value, or difference.
            "identity": the tensor itself.  "nce", "sampled_softmax": what a last layer is given
            [N, dim], by class labels; only some classes are computed.
        input: The tensor of the model.
        label: The class labels, or the target: an input of the model or a new one, whose type
            follows from that of ``input``.
        name: What the loss is called; by default "loss", or what the tensor itself is called.
        reduction: "mean", "sum" or "none".
        label_dtype: Element type of labels that become an input.
        axis: The dimension of the classes; by default 1 for "cross_entropy", as in ONNX, and the
            last for "nll", as in PopART.
        ignore_index: Labels of this value do not count.
        weights: A tensor of the model [C], how much the labels of each class count; of "nce" and
            "sampled_softmax" the weights of the last layer [C, dim].
        biases: The biases of that layer [C], if it has any.
        num_sampled: How many classes "nce" and "sampled_softmax" compare with.
        num_true: How many right classes a sample has; labels are [N, num_true] if several.
        unique: Whether no class is drawn twice.
        samples: The numbers of these classes: a tensor of the model or a new input; they are drawn
            by Zipf's law otherwise.
        log_probability: Whether ``input`` holds logarithms of probabilities.
        lambda_: A factor; ``lambda`` in mappings.
        blank: The class that stands for no label.
        max_labels: How many labels a sample may have, if ``label`` becomes an input.
        input_lengths, label_lengths: How many time steps and labels of each sample are valid, as
            ``label``; by default all.
        zero_infinity: Whether samples that are too short for their labels have loss 0.
    """

    type: str
    input: str
    label: str = ""
    name: str = ""
    reduction: str = "mean"
    label_dtype: DType = DType.INT32
    axis: int | None = None
    ignore_index: int | None = None
    weights: str = ""
    biases: str = ""
    num_sampled: int | None = None
    num_true: int = 1
    samples: str = ""
    unique: bool = False
    log_probability: bool = False
    lambda_: float = 1.0
    blank: int = 0
    max_labels: int | None = None
    input_lengths: str = ""
    label_lengths: str = ""
    zero_infinity: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.input if self.type == "identity" else "loss")

    @property
    def fed_tensors(self) -> tuple[str, ...]:
        """Tensors that become inputs of the model if it does not have them."""
        names = (self.label, self.input_lengths, self.label_lengths, self.samples)
        return tuple(filter(None, names))

    def problems(self) -> Iterator[str]:
        """The problems of the settings, beside their types."""
        if self.type not in _SETTINGS:
            advice = did_you_mean(self.type, LOSS_TYPES) or f"choose from {', '.join(LOSS_TYPES)}"
            yield f"loss.type is {self.type!r}, which does not exist: {advice}"
            return
        if not self.input:
            yield "loss.input is missing: name the tensor of the model to compute it from"
        if not self.label and self.type in _LABELLED:
            yield f"loss.label is missing: {self.type} needs the name of the labels"
        if self.type in _SAMPLED:
            yield from self._problems_of_samples()
        if self.reduction not in REDUCTIONS:
            yield f"loss.reduction is {self.reduction!r}, but must be one of {_listed(REDUCTIONS)}"
        if not self.label_dtype.is_integer:
            yield f"loss.label_dtype is {self.label_dtype}, but labels are integers"
        allowed = (*_COMMON, *_SETTINGS[self.type])
        for field in fields(self):
            if field.name not in allowed and getattr(self, field.name) != field.default:
                yield (
                    f"loss.{field.name.rstrip('_')} does not apply to {self.type}, which has "
                    f"{_listed(_SETTINGS[self.type]) or 'no settings of its own'}"
                )

    def _problems_of_samples(self) -> Iterator[str]:
        if not self.weights:
            yield f"loss.weights is missing: {self.type} needs those of the last layer"
        if self.num_sampled is None:
            yield "loss.num_sampled is missing: say how many classes to compare with"
        if self.unique and self.samples:
            yield "loss.unique is about classes that are drawn, but loss.samples names them"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name.rstrip("_") for name in names)
