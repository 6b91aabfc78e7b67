"""Losses of classification: scores [N, C, d...], labels [N, d...], class weights [C]."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops.infer import FLOATS, check_choice, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_LABELS: Final = (DType.INT32, DType.INT64)


def _loss(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The loss: a scalar, or with reduction "none" one value per label."""
    check_choice(attributes, "reduction", ("none", "mean", "sum"))
    scores, labels = operand(inputs, 0), operand(inputs, 1)
    weights = optional_operand(inputs, 2)
    one_dtype([scores, weights], FLOATS)
    one_dtype([labels], _LABELS)
    if scores.rank < 2:
        raise ModelError(f"scores must have at least 2 dimensions, not {scores.rank}")
    batch, classes, *rest = scores.shape
    if labels.shape != (batch, *rest):
        raise ModelError(f"labels {labels} do not fit scores {scores}")
    if weights is not None and weights.shape != (classes,):
        raise ModelError(f"weights {weights} do not fit {classes} classes")
    return (scores.with_shape(labels.shape if attributes["reduction"] == "none" else ()),)


def _cross_entropy(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The loss and the logarithms of the probabilities."""
    return (*_loss(inputs, attributes), operand(inputs, 0))


OPS: Final[dict[str, OpSpec]] = {
    "NegativeLogLikelihoodLoss": OpSpec(_loss),
    "SoftmaxCrossEntropyLoss": OpSpec(_cross_entropy),
}
