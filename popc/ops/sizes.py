"""Sizes that data decides: results as large as they can be, and beside them how large they are.

What is wanted lies in the corner of a result, along every axis; what lies behind is padding.
``bound`` is the most that was planned for, ``tensor`` what users call the result, for messages.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer
from popc.ops.infer import BOOLS, broadcast_shapes, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_SIZE: Final = TensorType(DType.INT64, ())


def _places(*shape: int) -> TensorType:
    return TensorType(DType.INT64, shape)


def _bound(attributes: Attributes, most: int) -> int:
    bound = integer(attributes, "bound")
    if not 0 <= bound <= most:
        raise ModelError(f"the bound {bound} is not in 0..{most}")
    return bound


def _non_zero(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The coordinates [rank, bound] of what is not zero, in order, and their number."""
    x = operand(inputs, 0)
    return _places(x.rank, _bound(attributes, x.size)), _SIZE


def _unique(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X (the slices along ``axis``; all of a list) and optionally the number of slices that count.

    Values, their first places [bound], the value of each slice, how often each value occurs
    [bound], and how many values there are.
    """
    x, count = operand(inputs, 0), optional_operand(inputs, 1)
    axis = integer(attributes, "axis")
    if not 0 <= axis < x.rank:
        raise ModelError(f"axis {axis} is not one of {x}")
    if count not in (None, _SIZE):
        raise ModelError(f"the number of slices must be one int64, not {count}")
    dim = x.shape[axis]
    bound = _bound(attributes, dim)
    shape = (*x.shape[:axis], bound, *x.shape[axis + 1 :])
    return x.with_shape(shape), _places(bound), _places(dim), _places(bound), _SIZE


def _non_max_suppression(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Boxes [N, B, 4], scores [N, C, B], the most of a class, the overlap, a threshold?, boxes?.

    The last operand is the number of boxes that count.  The results are [bound, 3], places of
    batch, class and box, and their number.
    """
    boxes, scores, limit, overlap = (operand(inputs, index) for index in range(4))
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4:
        raise ModelError(f"boxes {boxes} and scores {scores} must be [N, B, 4], [N, C, B]")
    if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ModelError(f"boxes {boxes} and scores {scores} do not belong together")
    for number in (limit, overlap, *(optional_operand(inputs, index) for index in (4, 5))):
        if number is not None and number.size != 1:
            raise ModelError(f"limits of the selection must be one number each, not {number}")
    return _places(_bound(attributes, scores.size), 3), _SIZE


def _check_size(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """A size as it is; an error at run time if it is beyond ``bound``, or not that of operand 1."""
    size, other = operand(inputs, 0), optional_operand(inputs, 1)
    if size != _SIZE or other not in (None, _SIZE):
        raise ModelError(f"sizes must be one int64 each, not {size} and {other}")
    integer(attributes, "bound")
    return (_SIZE,)


def _places_within(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Indices, the sizes that they count from, and optionally which of them are no padding.

    Sizes are one, or one for each component of tuples in the last axis.  Negative indices become
    positive; padding becomes ``padding``, and that of further components 0.
    """
    indices, sizes, valid = operand(inputs, 0), operand(inputs, 1), optional_operand(inputs, 2)
    if not indices.dtype.is_integer or sizes.dtype is not DType.INT64:
        raise ModelError(f"indices {indices} and sizes {sizes} must be integers")
    if sizes.rank > 1 or (sizes.rank == 1 and sizes.shape != indices.shape[-1:]):
        raise ModelError(f"sizes {sizes} do not belong to indices {indices}")
    if valid is not None:
        one_dtype([valid], BOOLS)
        _require_same(broadcast_shapes([indices.shape, valid.shape]), indices.shape)
    integer(attributes, "padding")
    return (_places(*indices.shape),)


def _require_same(shape: Shape, wanted: Shape) -> None:
    if shape != wanted:
        raise ModelError(f"what is no padding has the shape {list(shape)}, not {list(wanted)}")


OPS: Final[dict[str, OpSpec]] = {
    "CheckSize": OpSpec(_check_size),
    "NonMaxSuppression": OpSpec(_non_max_suppression),
    "NonZero": OpSpec(_non_zero),
    "PlacesWithin": OpSpec(_places_within),
    "Unique": OpSpec(_unique),
}
