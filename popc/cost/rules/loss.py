"""Losses of classification."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule, softmax_steps
from popc.cost.work import Work

__all__ = ["RULES"]


def _loss(work: Work, *, softmax: bool, grad: bool) -> None:
    scores = work.result() if grad else work.input()
    labels = next(t.type for t in work.op.present_inputs[1:] if t.type.dtype.is_integer)
    if softmax:
        softmax_steps(work, scores.size, labels.size)
    work.receive("labels", 4 * work.machine.share(labels.size, labels.dtype))
    # One hot, logarithm and product are one vertex: LossSoftmaxTransform, 9 cycles each.
    share = -(-work.machine.share(scores.size, scores.dtype) // 6)
    work.compute("loss", 6 * (25 + 9 * share), "Loss")
    if not grad:
        work.reduce(((scores.size, True),), scores.dtype)


def _rule(*, softmax: bool, grad: bool) -> CostRule:
    return lambda work: _loss(work, softmax=softmax, grad=grad)


RULES: Final[dict[str, CostRule]] = {
    "NegativeLogLikelihoodLoss": _rule(softmax=False, grad=False),
    "NegativeLogLikelihoodLossGrad": _rule(softmax=False, grad=True),
    "Nll": _rule(softmax=False, grad=False),
    "NllGrad": _rule(softmax=False, grad=True),
    "SoftmaxCrossEntropyLoss": _rule(softmax=True, grad=False),
    "SoftmaxCrossEntropyLossGrad": _rule(softmax=True, grad=True),
}
