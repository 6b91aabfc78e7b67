"""Gradients of quantising and dequantising, as if rounding were the identity ("straight through").

The gradient of the integers between the two is a floating-point tensor.  Saturated elements have
no gradient; a scale has that of the error which rounding and saturation make of it, as in PyTorch's
fake quantisation with a learnable scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Op, Shape, Tensor
from popc.ir.attributes import integer
from popc.ops.infer import attribute_dtype
from popc_runtime.format import DType

__all__ = ["GRADIENTS", "is_straight_through"]


def is_straight_through(op: Op) -> bool:
    """True if ``op`` makes integers with a gradient: nobody but DequantizeLinear reads them."""
    users = [user for tensor in op.outputs for user in tensor.users]
    return op.op_type == "QuantizeLinear" and all(
        user.op_type == "DequantizeLinear" and user.operand(0) is op.output for user in users
    )


def _quantize(b: Backward) -> Sequence[Tensor | None]:
    """saturate(round(x / scale) + zero point)."""
    x, scale = b.input(0), b.input(1)
    wide = DType.FLOAT64 if x.type.dtype is DType.FLOAT64 else DType.FLOAT32
    divisor = _aligned(b, b.cast(scale, wide))
    place = b.div(b.cast(x, wide), divisor)
    share = b.masked(_within_limits(b, place), b.div(b.cast(b.grad(), wide), divisor))
    first = b.cast(share, x.type.dtype) if b.wants(0) else None
    second = _like_scale(b, b.neg(_summed(b, b.mul(share, place)))) if b.wants(1) else None
    return [first, second]


def _within_limits(b: Backward, place: Tensor) -> Tensor:
    """True where the integer next to ``place`` is one of the quantised type."""
    limits = np.iinfo(attribute_dtype(b.attributes, "dtype").storage)
    level, zero = b.emit("Round", [place]), b.optional(2)
    if zero is not None:
        level = b.add(level, _aligned(b, b.cast(zero, place.type.dtype)))
    above = b.emit("GreaterOrEqual", [level, b.scalar(limits.min, level)])
    below = b.emit("LessOrEqual", [level, b.scalar(limits.max, level)])
    return b.emit("And", [above, below])


def _dequantize(b: Backward) -> Sequence[Tensor | None]:
    """(x - zero point) * scale."""
    g, scale = b.grad(), b.input(1)
    first = second = None
    if b.wants(0):
        first = b.mul(g, _aligned(b, b.cast(scale, g.type.dtype)))
    if b.wants(1):
        operands = [b.input(0), b.filled(1.0, scale.type), b.optional(2)]
        unscaled = b.emit("DequantizeLinear", operands, b.attributes)
        second = _like_scale(b, _summed(b, b.mul(g, unscaled)))
    return [first, second]


# -- which elements share a scale ------------------------------------------------------------------


def _like_scale(b: Backward, summed: Tensor) -> Tensor:
    type_ = b.input(1).type
    return b.cast(b.reshape(summed, type_.shape), type_.dtype)


def _blocks(b: Backward) -> tuple[int, int, int]:
    """Their axis, number and length: of length 1 for a scale per index, one for them all."""
    dims, scale = b.input(0).type.shape, b.input(1).type
    if scale.size == 1 and scale.rank < 2:
        return 0, 1, 0
    axis = integer(b.attributes, "axis")
    size = integer(b.attributes, "block_size", 0)
    return (axis, scale.shape[axis], size) if size else (axis, dims[axis], 1)


def _aligned(b: Backward, parameter: Tensor) -> Tensor:
    """The scale or the zero point in a shape that broadcasts to the operand."""
    dims = b.input(0).type.shape
    axis, count, size = _blocks(b)
    if not size:
        return b.reshape(parameter, ())
    if parameter.type.rank == 1 and size == 1:
        return b.reshape(parameter, (count,) + (1,) * (len(dims) - 1 - axis))
    split = _split(dims, axis, count, size)
    once = (*split[: axis + 1], 1, *split[axis + 2 :])
    repeated = b.reshape(
        b.expand(b.reshape(parameter, once), split), _whole(dims, axis, count * size)
    )
    return b.part(repeated, axis, range(dims[axis]))


def _summed(b: Backward, product: Tensor) -> Tensor:
    """``product`` summed over the elements that share a scale."""
    dims = product.type.shape
    axis, count, size = _blocks(b)
    if not size:
        return b.sum(product, range(len(dims)))
    if b.input(1).type.rank == 1 and size == 1:
        return b.sum(product, [other for other in range(len(dims)) if other != axis])
    ends = [0] * len(dims)
    ends[axis] = count * size - dims[axis]
    padded = b.pad(product, [0] * len(dims), ends)
    return b.sum(b.reshape(padded, _split(dims, axis, count, size)), [axis + 1])


def _split(dims: Shape, axis: int, count: int, size: int) -> Shape:
    return (*dims[:axis], count, size, *dims[axis + 1 :])


def _whole(dims: Shape, axis: int, length: int) -> Shape:
    return (*dims[:axis], length, *dims[axis + 1 :])


GRADIENTS: Final[dict[str, GradientRule]] = {
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
