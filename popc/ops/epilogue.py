"""The work that convolutions and products may do on their result before they store it.

The order is: add a bias, add a residual, apply an activation.  The activation is attribute
``activation`` (the type of a unary op; "" for none), and that op's own attributes carry the prefix
``activation_``: ``activation_alpha``, ``activation_min``, ...
"""

from __future__ import annotations

from popc.ir import TensorType
from popc.ops.infer import broadcast_shapes
from popc.ops.spec import OperandTypes
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes
from popc_runtime.kernels.core.families import ACTIVATION_NAMES

__all__ = ["check_activation", "check_bias", "check_channel_bias", "check_residual"]


def _optional(inputs: OperandTypes, index: int) -> TensorType | None:
    return inputs[index] if index < len(inputs) else None


def _check_dtype(type_: TensorType, result: TensorType, what: str) -> None:
    if type_.dtype is not result.dtype:
        raise ModelError(f"the {what} is {type_.dtype}, expected {result.dtype}")


def check_bias(inputs: OperandTypes, index: int, result: TensorType) -> None:
    """An optional operand that broadcasts to the result."""
    bias = _optional(inputs, index)
    if bias is None:
        return
    _check_dtype(bias, result, "bias")
    if broadcast_shapes([bias.shape, result.shape]) != result.shape:
        raise ModelError(f"bias {list(bias.shape)} does not broadcast to {list(result.shape)}")


def check_channel_bias(inputs: OperandTypes, index: int, result: TensorType) -> None:
    """An optional operand with one element per output channel."""
    bias = _optional(inputs, index)
    if bias is None:
        return
    _check_dtype(bias, result, "bias")
    if bias.shape != (result.shape[1],):
        raise ModelError(f"bias is {list(bias.shape)}, expected [{result.shape[1]}]")


def check_residual(inputs: OperandTypes, index: int, result: TensorType) -> None:
    """An optional operand of exactly the result's type."""
    residual = _optional(inputs, index)
    if residual is not None and residual != result:
        raise ModelError(f"the residual is {residual}, expected {result}")


def check_activation(attributes: Attributes) -> None:
    """Attribute ``activation`` names an op that can be an epilogue."""
    name = attributes.get("activation", "")
    if name != "" and name not in ACTIVATION_NAMES:
        known = ", ".join(sorted(ACTIVATION_NAMES))
        raise ModelError(f"{name!r} is not an activation; known: {known}")
