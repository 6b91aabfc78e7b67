"""Elements combined by the index that each has along an axis."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import NUMBERS, check_choice, normal_axis, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]

_REDUCTIONS: Final = ("sum", "max", "min", "mul", "none")


def _scatter_reduce(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands data, indices and optionally the initial values of the result.

    Indices have the shape of the data, or of its dimensions up to ``axis``: then whole rows, what
    lies behind the axis, are combined.  The result has ``axis_size`` along the axis.  Without
    initial values, elements that no index names are 1 for products, else 0.
    """
    data, indices = operand(inputs, 0), operand(inputs, 1)
    one_dtype([data], NUMBERS)
    check_choice(attributes, "reduction", _REDUCTIONS)
    axis, size = (
        normal_axis(integer(attributes, "axis"), data.rank),
        integer(attributes, "axis_size"),
    )
    if size < 1:
        raise ModelError(f"axis_size must be positive, not {size}")
    if not indices.dtype.is_integer:
        raise ModelError(f"indices must be integers, not {indices.dtype}")
    if indices.shape not in (data.shape, data.shape[: axis + 1]):
        raise ModelError(f"indices {indices} do not fit {data} along axis {axis}")
    result = data.with_shape((*data.shape[:axis], size, *data.shape[axis + 1 :]))
    initial = optional_operand(inputs, 2)
    if initial is not None and initial != result:
        raise ModelError(f"initial values must be {result}, not {initial}")
    return (result,)


OPS: Final[dict[str, OpSpec]] = {
    "ScatterReduce": OpSpec(_scatter_reduce, inplace=(2,)),
}
