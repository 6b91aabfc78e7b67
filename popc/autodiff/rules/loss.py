"""Gradients of losses.  Class weights are given, not learned: they get no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import AttributeMap, Tensor

__all__ = ["GRADIENTS"]


def _attributes(b: Backward) -> AttributeMap:
    return {
        name: b.attributes[name]
        for name in ("reduction", "ignore_index", "outside")
        if name in b.attributes
    }


def _negative_log_likelihood(b: Backward) -> Sequence[Tensor | None]:
    attributes = {**_attributes(b), "shape": b.input(0).type.shape}
    operands = [b.grad(), b.input(1), b.optional(2)]
    return [b.emit("NegativeLogLikelihoodLossGrad", operands, attributes)]


def _nll(b: Backward) -> Sequence[Tensor | None]:
    return [b.emit("NllGrad", [b.grad(), b.input(0), b.input(1)], _attributes(b))]


def _softmax_cross_entropy(b: Backward) -> Sequence[Tensor | None]:
    """The loss: share * (softmax - 1 at the label).  The logarithm: g - softmax * sum(g)."""
    log_grad = b.optional_grad(1) if b.attributes.get("log_prob") else None
    loss_grad = b.optional_grad(0)
    softmax = b.demand("softmax")
    grads: list[Tensor] = []
    if loss_grad is not None:
        operands = [loss_grad, softmax, b.input(1), b.optional(2)]
        grads.append(b.emit("SoftmaxCrossEntropyLossGrad", operands, _attributes(b)))
    if log_grad is not None:
        total = b.sum(log_grad, (1,), keepdims=True)
        grads.append(b.sub(log_grad, b.mul(softmax, total)))
    return [b.add(*grads) if len(grads) > 1 else grads[0]]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "Nll": _nll,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
