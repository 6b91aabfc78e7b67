"""Writing variables, and adding gradients up over the micro-batches of a batch.

Neither op has a kernel of its own: lowering makes a copy of a CopyVarUpdate, or nothing if the
value has been computed in place; MainLoops makes a loop state of an Accumulate.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, check_choice, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _copied(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: a variable and its next value.  The variable changes when all have read it.

    With ``start``, the value is a row [1, n] of elements, and replaces those of the variable from
    this one on.
    """
    variable, value = operand(inputs, 0), operand(inputs, 1)
    if "start" in attributes:
        start = integer(attributes, "start")
        is_part = value.shape == (1, value.size) and 0 <= start <= variable.size - value.size
        if not is_part or value.dtype is not variable.dtype:
            raise ModelError(f"a variable of type {variable} has no {value} from {start} on")
    elif variable != value:
        raise ModelError(f"a variable of type {variable} cannot hold {value}")
    return ()


def _accumulated(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: what is added in each micro-batch, and optionally where the sum starts.

    ``kind``: "sum"; or "mean", the running mean s * n / (n + 1) + x / (n + 1).  The result is that
    after the last micro-batch.
    """
    addend, start = operand(inputs, 0), optional_operand(inputs, 1)
    check_choice(attributes, "kind", ("sum", "mean"))
    one_dtype([addend], FLOATS)
    if start is not None and start != addend:
        raise ModelError(f"a sum of {addend} cannot start with {start}")
    return (addend,)


OPS: Final[dict[str, OpSpec]] = {
    "Accumulate": OpSpec(_accumulated, random=True),  # one per micro-batch: never merged or folded
    "CopyVarUpdate": OpSpec(_copied, side_effect=True),
}
