"""Gradients of what users compute: the functions that came with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Op, Tensor
from popc.ir.attributes import text
from popc.ops.custom import operator_of
from popc_runtime.kernels.custom import CALL

__all__ = ["GRADIENTS", "why_no_gradient"]


def why_no_gradient(op: Op) -> str:
    """The reason why what a user computes cannot be differentiated; empty if it can."""
    if op.op_type == "HostCall":
        name = text(op.attributes, CALL)
        return "" if text(op.attributes, "gradient") else f"the host call {name} has no gradient"
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


def _host_call(b: Backward) -> Sequence[Tensor | None]:
    """Another call: of operands, results and gradients of results, for gradients of operands."""
    operands, results = list(b.op.inputs), list(b.op.outputs)
    wanted = [index for index in range(len(operands)) if b.wants(index)]
    types = tuple(str(tensor.type) for index in wanted if (tensor := operands[index]) is not None)
    gradients = [b.grad(index) for index in range(len(results))]
    attributes = {
        **b.attributes,
        CALL: text(b.attributes, "gradient"),
        "gradient": "",
        "types": types,
    }
    found = b.emit_all("HostCall", [*operands, *results, *gradients], attributes)
    places = dict(zip(wanted, found, strict=True))
    return [places.get(index) for index in range(len(operands))]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Custom": _custom,
    "HostCall": _host_call,
}
