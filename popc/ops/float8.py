"""Floats of eight bits: conversions with a power of two as scale, and who else takes them.

An IPU has two formats, which multiply a scale as they convert; PopART's names say in which order.
The models of ONNX that have no scale convert with none.  What is stored in eight bits is moved, but
not computed with: every other op refuses it.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Op, TensorType
from popc.ops.infer import attribute_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS", "check_float8", "widens_device_float"]

# The formats of an IPU: four bits of exponent and three of mantissa (F143), or five and two (F152).
_DEVICE_FLOATS8: Final = frozenset({DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2FNUZ})

_TAKERS: Final = frozenset(
    {
        *("BitCast", "Boundary", "CastThenPow2Scale", "Concat", "Copy", "CopyVarUpdate", "Detach"),
        *("DynamicSlice", "DynamicUpdate", "DynamicZero", "Expand", "Gather", "GatherElements"),
        *("GatherND", "HostLoad", "HostStore", "IoTileCopy", "IpuCopy", "Pad", "RemoteLoad"),
        *("RemoteStore", "Reshape", "Restore", "ReverseSequence", "ScatterElements", "ScatterND"),
        *("Slice", "Split", "Stash", "Tile", "Transpose", "Where"),
    }
)


def widens_device_float(op: Op) -> bool:
    """True if ``op`` makes wider floats of eight bits in a format that chips multiply as it is."""
    return op.op_type == "CastThenPow2Scale" and op.operand(0).type.dtype in _DEVICE_FLOATS8


def check_float8(op_type: str, inputs: OperandTypes) -> None:
    """Refuse floats of eight bits as operands of what computes with them.

    Raises:
        ModelError: there is one.
    """
    if op_type in _TAKERS:
        return
    for type_ in inputs:
        if type_ is not None and type_.dtype.is_float8:
            raise ModelError(
                f"element type {type_.dtype} is stored, moved and converted, but not computed "
                "with: dequantise, or cast to float16 or float32, in front"
            )


def _decode(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x, dtype = operand(inputs, 0), attribute_dtype(attributes, "to")
    if not x.dtype.is_float8 or not dtype.is_float:
        raise ModelError(f"{x.dtype} to {dtype} is no conversion from eight bits to a wider float")
    _check_scale(inputs)
    return (x.with_dtype(dtype),)


def _encode(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x, dtype = operand(inputs, 0), attribute_dtype(attributes, "to")
    if not x.dtype.is_float or not dtype.is_float8:
        raise ModelError(f"{x.dtype} to {dtype} is no conversion from a float to one of eight bits")
    _check_scale(inputs)
    return (x.with_dtype(dtype),)


def _check_scale(inputs: OperandTypes) -> None:
    scale = optional_operand(inputs, 1)
    if scale is not None and (scale.dtype is not DType.INT32 or scale.size != 1):
        raise ModelError(f"the exponent of the scale must be one int32, not {scale}")


OPS: Final[dict[str, OpSpec]] = {
    "CastThenPow2Scale": OpSpec(_decode),
    "Pow2ScaleThenCast": OpSpec(_encode),
}
