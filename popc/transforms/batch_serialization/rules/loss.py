"""Losses of classification and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.ir.attributes import text
from popc.transforms.batch_serialization.cut import LOSS_PLACES, Case, Combination, Cut, Rule
from popc_runtime.format import Attribute

__all__ = ["RULES"]

_COUNTED: Final = "its mean is over the labels that count, which differ from part to part"
_NOT_CUT: Final = "its operands are not cut"


def _loss(classes_last: bool) -> Rule:  # noqa: FBT001
    """A rule for losses over scores [N, C, ...], or [..., C], and labels without C."""

    def rule(case: Case) -> Cut | str:
        found = _axes(case, 0, classes_last=classes_last)
        if isinstance(found, str):
            return found
        scores, labels = found
        place = LOSS_PLACES.get(text(case.op.attributes, "reduction"), labels)
        if place is Combination.MEAN and _counts(case, 2):
            return _COUNTED
        results = (place, *(scores,) * (len(case.op.outputs) - 1))
        return case.cut({0: scores, 1: labels}, results)

    return rule


def _loss_grad(classes_last: bool, *, shaped: bool = False) -> Rule:  # noqa: FBT001
    """A rule for their gradients: that of the loss, the scores unless ``shaped``, the labels."""

    def rule(case: Case) -> Cut | str:
        first = 0 if shaped else 1
        shape = case.integers("shape") if shaped else case.shape(1)
        found = _axes(case, first, classes_last=classes_last, shape=shape)
        if isinstance(found, str):
            return found
        scores, labels = found
        reduction = case.op.attributes["reduction"]
        if reduction == "mean" and _counts(case, first + 2):
            return _COUNTED
        operands = {first + 1: labels}
        if not shaped:
            operands[1] = scores
        if reduction == "none":
            operands[0] = labels
        attributes: Mapping[str, Attribute] = (
            {"shape": case.part_shape(shape, scores)} if shaped else {}
        )
        return case.cut(operands, (scores,), attributes, (0,) if reduction == "mean" else ())

    return rule


def _axes(
    case: Case, first: int, *, classes_last: bool, shape: tuple[int, ...] | None = None
) -> tuple[int, int] | str:
    """The batch axes of the scores, operand ``first``, and of the labels behind it."""
    rank = len(shape or case.shape(first))
    classes = rank - 1 if classes_last else 1
    scores = None if first == 0 and shape is not None else case.axis(first)
    labels = case.axis(first + 1)
    if scores is None and labels is not None:
        scores = labels if labels < classes else labels + 1
    if scores is None or scores == classes:
        return _NOT_CUT
    return scores, scores if scores < classes else scores - 1


def _counts(case: Case, weights: int) -> bool:
    """True if labels do not all count the same."""
    return case.has(weights) or "ignore_index" in case.op.attributes


RULES: Final[dict[str, Rule]] = {
    "NegativeLogLikelihoodLoss": _loss(classes_last=False),
    "NegativeLogLikelihoodLossGrad": _loss_grad(classes_last=False, shaped=True),
    "Nll": _loss(classes_last=True),
    "NllGrad": _loss_grad(classes_last=True),
    "SoftmaxCrossEntropyLoss": _loss(classes_last=False),
    "SoftmaxCrossEntropyLossGrad": _loss_grad(classes_last=False),
}
