"""Softmax and its gradients."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, beside_axis

__all__ = ["RULES"]


def _softmax_grad(case: Case) -> Cut | str:
    axis = next((dim for dim in case.axes if dim is not None), None)
    if axis is None or axis == case.integer("axis", -1) % len(case.shape(0)):
        return "it works along the batch"
    return case.cut({0: axis, 1: axis}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "LogSoftmax": beside_axis,
    "LogSoftmaxGrad": _softmax_grad,
    "Softmax": beside_axis,
    "SoftmaxGrad": _softmax_grad,
}
