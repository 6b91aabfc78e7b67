"""Products and convolutions of 8-bit integers; zero points broadcast to their operand.

Operands are left, right, their zero points, an int32 bias (of convolutions), and what follows the
sums: a scale, a bias and a residual, which are floats.  The order is: scale, round to multiples
(attributes ``rounding_scale``, ``rounding_low`` and ``rounding_high``, as those of FakeQuantize),
bias, residual, activation (as in `popc.ops.epilogue`), quantise to a result of 8 bits, multiplied
before (``quantize_factor``, ``quantize_scale``, ``quantize_zero``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops import conv, matmul
from popc.ops.epilogue import check_activation, check_residual
from popc.ops.infer import attribute_dtype, broadcast_shapes, operand
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType
from popc_runtime.kernels.parts.byte_operands import BIAS, INTEGER_BIAS, RESIDUAL, SCALE

__all__ = ["OPS"]


_EIGHT_BITS: Final = (DType.INT8, DType.UINT8)
_FOLLOWING: Final = frozenset({"activation", "quantize_scale", "rounding_scale"})
_RESULTS: Final = (DType.INT32, DType.FLOAT32, DType.INT8, DType.UINT8)


def _like_floating(infer_floating: InferRule, channel_axis: Callable[[int], int]) -> InferRule:
    """The type rule of an integer op by that of the same op on floats.

    ``channel_axis`` tells from the rank of a result which axis has scales and biases.
    """

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        for index in (0, 1):
            _check_operand(inputs, index)
        floats = [_as_float(operand(inputs, 0)), _as_float(operand(inputs, 1))]
        bias = _optional(inputs, INTEGER_BIAS)
        if bias is not None:
            floats.append(_as_float(bias))
        plain = {name: value for name, value in attributes.items() if name != "activation"}
        (result,) = infer_floating(floats, plain)
        dtype = attribute_dtype(attributes, "dtype")
        if dtype not in _RESULTS:
            names = ", ".join(output.value for output in _RESULTS)
            raise ModelError(f"an integer product is one of {names}, not {dtype}")
        _check_epilogue(inputs, result, attributes, channel_axis)
        return (result.with_dtype(dtype),)

    return infer


def _optional(inputs: OperandTypes, index: int) -> TensorType | None:
    return inputs[index] if len(inputs) > index else None


def _check_epilogue(
    inputs: OperandTypes,
    result: TensorType,
    attributes: Attributes,
    channel_axis: Callable[[int], int],
) -> None:
    """Check what follows the sums of a float32 ``result``."""
    dtype = attribute_dtype(attributes, "dtype")
    if dtype is DType.INT32 and (len(inputs) > SCALE or set(attributes) & _FOLLOWING):
        raise ModelError("nothing follows the sums of an int32 result")
    _check_quantizing(dtype, attributes)
    _check_rounding(attributes)
    check_activation(attributes)
    check_residual(inputs, RESIDUAL, result)
    for index, what in ((SCALE, "scale"), (BIAS, "bias")):
        channels = _optional(inputs, index)
        if channels is None:
            continue
        axis = channel_axis(result.rank)
        if channels.dtype is not DType.FLOAT32 or (
            channels.size != 1 and channels.shape != result.shape[axis : axis + 1]
        ):
            raise ModelError(f"the {what}, {channels}, does not fit axis {axis} of {result}")


def _check_quantizing(dtype: DType, attributes: Attributes) -> None:
    if dtype not in _EIGHT_BITS:
        return
    for name in ("quantize_scale", "quantize_zero"):
        if name not in attributes:
            raise ModelError(f"a result of {dtype} needs {name}")
    zero, least = integer(attributes, "quantize_zero"), -128 if dtype is DType.INT8 else 0
    if not least <= zero <= least + 255:
        raise ModelError(f"quantize_zero={zero} is out of range for {dtype}")


def _check_rounding(attributes: Attributes) -> None:
    names = ("rounding_scale", "rounding_low", "rounding_high")
    missing = [name for name in names if name not in attributes]
    if 0 < len(missing) < len(names):
        raise ModelError(f"rounding needs {' and '.join(missing)}")


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
    "ConvInteger": OpSpec(_like_floating(conv.OPS["Conv"].infer, lambda _: 1), strided_output=True),
    "MatMulInteger": OpSpec(_like_floating(matmul.OPS["MatMul"].infer, lambda rank: rank - 1)),
}
