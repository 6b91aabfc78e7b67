"""Gradients of operators that users have registered: the functions that came with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Op, Tensor
from popc.ops.custom import operator_of

__all__ = ["GRADIENTS", "why_no_gradient"]


def why_no_gradient(op: Op) -> str:
    """The reason why a custom operator cannot be differentiated; empty if it can."""
    operator = operator_of(op.attributes)
    return "" if operator.gradient else f"{operator.identifier} is registered without a gradient"


def _custom(b: Backward) -> Sequence[Tensor | None]:
    operands, results = list(b.op.inputs), list(b.op.outputs)
    wanted = tuple(index for index in range(len(operands)) if b.wants(index))
    gradients = [b.grad(index) for index in range(len(results))]
    attributes = {**b.attributes, "operands": len(operands), "wanted": wanted}
    found = b.emit_all("CustomGrad", [*operands, *results, *gradients], attributes)
    places = dict(zip(wanted, found, strict=True))
    return [places.get(index) for index in range(len(operands))]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Custom": _custom,
}
