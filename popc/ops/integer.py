"""Products and convolutions of 8-bit integers; zero points broadcast to their operand."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops import conv, matmul
from popc.ops.infer import attribute_dtype, broadcast_shapes, operand
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_EIGHT_BITS: Final = (DType.INT8, DType.UINT8)
_RESULTS: Final = (DType.INT32, DType.FLOAT32)


def _like_floating(infer_floating: InferRule) -> InferRule:
    """The type rule of an integer op by that of the same op on floats.

    Operands are left, right, their zero points, and then what the floating-point op has beside.
    """

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        for index in (0, 1):
            _check_operand(inputs, index)
        others = [None if type_ is None else _as_float(type_) for type_ in inputs[4:]]
        floats = [_as_float(operand(inputs, 0)), _as_float(operand(inputs, 1)), *others]
        (result,) = infer_floating(floats, attributes)
        dtype = attribute_dtype(attributes, "dtype")
        if dtype not in _RESULTS:
            raise ModelError(f"an integer product is int32 or float32, not {dtype}")
        return (result.with_dtype(dtype),)

    return infer


def _as_float(type_: TensorType) -> TensorType:
    return type_.with_dtype(DType.FLOAT32)


def _check_operand(inputs: OperandTypes, index: int) -> None:
    type_ = operand(inputs, index)
    if type_.dtype not in _EIGHT_BITS:
        raise ModelError(f"input {index} must be int8 or uint8, not {type_.dtype}")
    zero = inputs[index + 2] if len(inputs) > index + 2 else None
    if zero is None:
        return
    if zero.dtype is not type_.dtype:
        raise ModelError(f"the zero point of input {index} is {zero.dtype}, not {type_.dtype}")
    if broadcast_shapes([type_.shape, zero.shape]) != type_.shape:
        raise ModelError(f"zero point {list(zero.shape)} does not fit input {list(type_.shape)}")


OPS: Final[dict[str, OpSpec]] = {
    "ConvInteger": OpSpec(_like_floating(conv.OPS["Conv"].infer)),
    "MatMulInteger": OpSpec(_like_floating(matmul.OPS["MatMul"].infer)),
}
