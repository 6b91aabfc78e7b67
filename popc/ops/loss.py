"""Losses of classification, and their gradients.

Scores [N, C, d...] (``Nll``, which is PopART's: [..., C]), labels [N, d...] ([...]), class weights
[C].  Labels equal to ``ignore_index`` (optional) do not count; with ``outside``, labels that name
no class have probability 0, else they end the run.  A gradient op takes the gradient of the loss
first.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import FLOATS, INTEGERS, check_choice, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS", "REDUCTIONS"]

REDUCTIONS: Final = ("none", "mean", "sum")


def _loss(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The loss: a scalar, or with reduction "none" one value per label."""
    scores, labels = operand(inputs, 0), operand(inputs, 1)
    _check(scores, labels, optional_operand(inputs, 2))
    return (_reduced(scores, labels.shape, attributes),)


def _cross_entropy(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The loss, with ``log_prob`` the logarithm of the softmax, with ``softmax`` the softmax."""
    results = sum(integer(attributes, name, 0) for name in ("log_prob", "softmax"))
    return (*_loss(inputs, attributes), *(operand(inputs, 0),) * results)


def _nll(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The loss of probabilities [..., C]."""
    probabilities, labels = operand(inputs, 0), operand(inputs, 1)
    _check_last(probabilities, labels)
    return (_reduced(probabilities, labels.shape, attributes),)


def _loss_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The type of scores of the shape in attribute ``shape``."""
    grad, labels = operand(inputs, 0), operand(inputs, 1)
    scores = grad.with_shape(integers(attributes, "shape"))
    _check(scores, labels, optional_operand(inputs, 2))
    _check_grad(grad, _reduced(scores, labels.shape, attributes))
    return (scores,)


def _cross_entropy_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operand 1 is the softmax of the scores, with ``log_probability`` its logarithm."""
    grad, softmax, labels = (operand(inputs, index) for index in range(3))
    _check(softmax, labels, optional_operand(inputs, 3))
    _check_grad(grad, _reduced(softmax, labels.shape, attributes))
    return (softmax,)


def _nll_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    grad, probabilities, labels = (operand(inputs, index) for index in range(3))
    _check_last(probabilities, labels)
    _check_grad(grad, _reduced(probabilities, labels.shape, attributes))
    return (probabilities,)


def _reduced(scores: TensorType, labels: Shape, attributes: Attributes) -> TensorType:
    check_choice(attributes, "reduction", REDUCTIONS)
    return scores.with_shape(labels if attributes["reduction"] == "none" else ())


def _check(scores: TensorType, labels: TensorType, weights: TensorType | None) -> None:
    one_dtype([scores, weights], FLOATS)
    one_dtype([labels], INTEGERS)
    if scores.rank < 2:
        raise ModelError(f"scores must have at least 2 dimensions, not {scores.rank}")
    batch, classes, *rest = scores.shape
    if labels.shape != (batch, *rest):
        raise ModelError(f"labels {labels} do not fit scores {scores}")
    if weights is not None and weights.shape != (classes,):
        raise ModelError(f"weights {weights} do not fit {classes} classes")


def _check_last(probabilities: TensorType, labels: TensorType) -> None:
    one_dtype([probabilities], FLOATS)
    one_dtype([labels], INTEGERS)
    if not probabilities.rank or labels.shape != probabilities.shape[:-1]:
        raise ModelError(f"labels {labels} do not fit probabilities {probabilities}")


def _check_grad(grad: TensorType, loss: TensorType) -> None:
    if grad != loss:
        raise ModelError(f"the gradient of a loss of type {loss} cannot be {grad}")


OPS: Final[dict[str, OpSpec]] = {
    "NegativeLogLikelihoodLoss": OpSpec(_loss),
    "NegativeLogLikelihoodLossGrad": OpSpec(_loss_grad),
    "Nll": OpSpec(_nll),
    "NllGrad": OpSpec(_nll_grad),
    "SoftmaxCrossEntropyLoss": OpSpec(_cross_entropy),
    "SoftmaxCrossEntropyLossGrad": OpSpec(_cross_entropy_grad, inplace=(1,)),
}
