"""Type rules that several families share, and the checks they are made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer, text
from popc.ops.spec import InferRule, OperandTypes
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = [
    "BOOLS",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "attribute_dtype",
    "broadcast_result",
    "broadcast_shapes",
    "check_choice",
    "check_rank",
    "elementwise",
    "like_gradient",
    "normal_axis",
    "one_dtype",
    "operand",
    "optional_operand",
    "reduced_shape",
    "same_along_axis",
    "same_as_first",
]

BOOLS: Final = frozenset({DType.BOOL})
FLOATS: Final = frozenset(dtype for dtype in DType if dtype.is_float)
INTEGERS: Final = frozenset(dtype for dtype in DType if dtype.is_integer)
NUMBERS: Final = FLOATS | INTEGERS


def operand(inputs: OperandTypes, index: int) -> TensorType:
    """The type of a required input."""
    type_ = inputs[index] if index < len(inputs) else None
    if type_ is None:
        raise ModelError(f"input {index} is required but missing")
    return type_


def optional_operand(inputs: OperandTypes, index: int) -> TensorType | None:
    """The type of an input that may be absent."""
    return inputs[index] if index < len(inputs) else None


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The multidirectional (numpy) broadcast of ``shapes``."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, dim in enumerate(shape, start=rank - len(shape)):
            if result[index] == 1:
                result[index] = dim
            elif dim not in (1, result[index]):
                listed = " and ".join(str(list(shape)) for shape in shapes)
                raise ModelError(f"shapes {listed} do not broadcast together")
    return tuple(result)


def broadcast_result(dtype: DType | None = None) -> InferRule:
    """One output of the broadcast shape, with ``dtype`` or else that of input 0."""

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        del attributes
        shape = broadcast_shapes([type_.shape for type_ in inputs if type_ is not None])
        return (TensorType(dtype or operand(inputs, 0).dtype, shape),)

    return infer


def one_dtype(inputs: OperandTypes, allowed: Collection[DType]) -> DType:
    """The element type that all present inputs share and that must be one of ``allowed``."""
    dtypes = list(dict.fromkeys(type_.dtype for type_ in inputs if type_ is not None))
    if len(dtypes) != 1:
        raise ModelError(f"operands must have one element type, not {' and '.join(dtypes)}")
    if dtypes[0] not in allowed:
        raise ModelError(f"element type {dtypes[0]} is not allowed here")
    return dtypes[0]


def elementwise(allowed: Collection[DType], result: DType | None = None) -> InferRule:
    """Inputs of one allowed element type; one output of their broadcast shape, of that type.

    ``result`` is the element type of the output where it is another (comparisons).
    """

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        del attributes
        first = operand(inputs, 0)
        if result is None and first.dtype in allowed and inputs.count(first) == len(inputs):
            return (first,)  # as most are
        dtype = one_dtype(inputs, allowed)
        shape = broadcast_shapes([type_.shape for type_ in inputs if type_ is not None])
        return (TensorType(result or dtype, shape),)

    return infer


def like_gradient(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """One output of the type of the gradient in input 0, to which the other inputs broadcast."""
    del attributes
    grad = operand(inputs, 0)
    one_dtype(inputs, FLOATS)
    for index in range(1, len(inputs)):
        shape = operand(inputs, index).shape
        if broadcast_shapes([grad.shape, shape]) != grad.shape:
            raise ModelError(f"input {index} {list(shape)} does not fit {list(grad.shape)}")
    return (grad,)


def same_as_first(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """One output of the type of input 0."""
    del attributes
    return (operand(inputs, 0),)


def same_along_axis(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """One output of the type of input 0, which has the axis in attribute ``axis``."""
    normal_axis(integer(attributes, "axis"), operand(inputs, 0).rank)
    return same_as_first(inputs, attributes)


def reduced_shape(shape: Shape, axes: Collection[int], keepdims: int) -> Shape:
    """``shape`` after a reduction over ``axes``."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def attribute_dtype(attributes: Attributes, name: str) -> DType:
    """A dtype held in a string attribute under its `DType` value."""
    return DType(text(attributes, name))


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front; ONNX allows -rank <= axis < rank."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def check_choice(attributes: Attributes, name: str, choices: Sequence[str]) -> None:
    """Refuse a string attribute that is not one of ``choices``."""
    value = text(attributes, name)
    if value not in choices:
        raise ModelError(f"attribute {name!r} is {value!r}, expected one of {', '.join(choices)}")


def check_rank(type_: TensorType, rank: int, what: str) -> None:
    """Refuse an operand that does not have ``rank`` dimensions."""
    if type_.rank != rank:
        raise ModelError(f"{what} must have {rank} dimensions, not {type_.rank}")
