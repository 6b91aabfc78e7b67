"""Slices whose place is known at run time only: read, replaced, added to, cleared.

Attributes ``axes`` and ``sizes`` say how large the slice is; the other axes are whole.  Operand 1
holds one offset per axis.  A slice that leaves the tensor is an error when it happens.

``no_overlap`` of a DynamicUpdate says that nothing else is written to its slice: then the gradient
of operand 0 is that of the result, as it is.  That of a DynamicSlice says that no other such slice
of the tensor has elements of it: then their gradients need not be added up.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integers
from popc.ops.infer import NUMBERS, normal_axis, one_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["NO_OVERLAP", "OPS"]

NO_OVERLAP: Final = "no_overlap"


def _window(inputs: OperandTypes, attributes: Attributes) -> Shape:
    """The shape of the slice."""
    source, offsets = operand(inputs, 0), operand(inputs, 1)
    axes, sizes = integers(attributes, "axes"), integers(attributes, "sizes")
    if not offsets.dtype.is_integer or offsets.size != len(axes):
        raise ModelError(f"needs {len(axes)} integer offsets, one per axis, not {offsets}")
    if len(sizes) != len(axes):
        raise ModelError(f"{len(axes)} axes, but {len(sizes)} sizes are given")
    shape = list(source.shape)
    seen: set[int] = set()
    for axis, size in zip(axes, sizes, strict=True):
        place = normal_axis(axis, source.rank)
        if place in seen:
            raise ModelError(f"axis {axis} is sliced twice")
        if not 0 <= size <= shape[place]:
            raise ModelError(f"a slice of {size} does not fit axis {axis}, which is {shape[place]}")
        seen.add(place)
        shape[place] = size
    return tuple(shape)


def _slice(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    return (operand(inputs, 0).with_shape(_window(inputs, attributes)),)


def _zero(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    _window(inputs, attributes)
    return (operand(inputs, 0),)


def _update(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, update = operand(inputs, 0), operand(inputs, 2)
    expected = source.with_shape(_window(inputs, attributes))
    if update != expected:
        raise ModelError(f"the slice must be {expected}, not {update}")
    return (source,)


def _add(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    one_dtype([operand(inputs, 0)], NUMBERS)
    return _update(inputs, attributes)


OPS: Final[dict[str, OpSpec]] = {
    "DynamicAdd": OpSpec(_add, inplace=(0,)),
    "DynamicSlice": OpSpec(_slice),
    "DynamicUpdate": OpSpec(_update, inplace=(0,)),
    "DynamicZero": OpSpec(_zero, inplace=(0,)),
}
