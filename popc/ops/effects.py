"""Ops that stand in a graph for what they do, not for what they compute.

Abort and PrintTensor name a stream, so that they happen in the order in which the model has them.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import text
from popc.ops.infer import operand, optional_operand, same_as_first
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.views import reshape_view
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _abort(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """End the run with an error that names ``title``, if the operand is absent or not zero."""
    text(attributes, "title")
    condition = optional_operand(inputs, 0)
    if condition is not None and condition.size != 1:
        raise ModelError(f"the condition must be one value, not {condition}")
    return ()


def _print(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The operand, printed under ``title``; ``gradient``: so is its gradient."""
    text(attributes, "title")
    return (operand(inputs, 0),)


OPS: Final[dict[str, OpSpec]] = {
    "Abort": OpSpec(_abort, side_effect=True),
    # The operand, through which no gradient flows.
    "Detach": OpSpec(same_as_first, view=reshape_view),
    "PrintTensor": OpSpec(_print, side_effect=True),
}
