"""Convolutions, direct, transposed and deformable.

Conv and ConvTranspose may carry what follows them; see `popc.ops.epilogue`.
"""

from __future__ import annotations

from math import prod
from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.epilogue import check_activation, check_channel_bias, check_residual
from popc.ops.infer import operand, optional_operand
from popc.ops.partials import check_partials
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.windows import window_attributes
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _conv(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    x, w = _data_and_weights(inputs)
    group = _group(attributes)
    if x.shape[1] != w.shape[1] * group:
        raise ModelError(
            f"X has {x.shape[1]} channels, but {group} groups of weights "
            f"take {w.shape[1]} channels each"
        )
    if w.shape[0] % group:
        raise ModelError(f"{w.shape[0]} output channels do not split into {group} groups")
    sizes = window_attributes(attributes, x.rank - 2).outputs(x.shape[2:], w.shape[2:])
    result = x.with_shape((x.shape[0], w.shape[0], *sizes))
    check_channel_bias(inputs, 2, result)
    check_residual(inputs, 3, result)
    check_activation(attributes)
    check_partials(attributes, result)
    return (result,)


def _data_and_weights(inputs: OperandTypes) -> tuple[TensorType, TensorType]:
    x, w = operand(inputs, 0), operand(inputs, 1)
    if x.rank < 3:
        raise ModelError(f"X needs a batch, a channel and a spatial axis, but is {list(x.shape)}")
    if w.rank != x.rank:
        raise ModelError(f"X has {x.rank} dimensions, but W has {w.rank}")
    if w.dtype is not x.dtype:
        raise ModelError(f"X is {x.dtype}, but W is {w.dtype}")
    if min(w.shape[2:]) < 1:
        raise ModelError(f"the kernel is empty: W is {list(w.shape)}")
    return x, w


def _group(attributes: Attributes) -> int:
    group = integer(attributes, "group", 1)
    if group < 1:
        raise ModelError(f"attribute 'group' must be positive, not {group}")
    return group


def _conv_transpose(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X [N, C, *sizes], W [C, M / group, *kernel], [B [M]]."""
    x, w = _data_and_weights(inputs)
    group, rank = _group(attributes), x.rank - 2
    if x.shape[1] != w.shape[0]:
        raise ModelError(f"X has {x.shape[1]} channels, but W takes {w.shape[0]}")
    if w.shape[0] % group:
        raise ModelError(f"{w.shape[0]} input channels do not split into {group} groups")
    extra = integers(attributes, "output_padding", (0,) * rank)
    if len(extra) != rank:
        raise ModelError(f"output_padding has {len(extra)} entries, expected {rank}")
    window = window_attributes(attributes, rank)
    sizes = window.transposed(x.shape[2:], w.shape[2:], extra)
    result = x.with_shape((x.shape[0], w.shape[1] * group, *sizes))
    check_channel_bias(inputs, 2, result)
    check_activation(attributes)
    check_partials(attributes, result)
    return (result,)


def _weights_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY [N, M, *windows], X [N, C, *sizes]: the gradient of a Conv's weights.

    Attributes are those of the Conv, and ``kernel_shape``.
    """
    dy, x = operand(inputs, 0), operand(inputs, 1)
    group, kernel = _group(attributes), integers(attributes, "kernel_shape")
    w = x.with_shape((dy.shape[1], x.shape[1] // group, *kernel))
    (y,) = _conv((x, w), attributes)
    if y != dy:
        raise ModelError(f"the gradient is {dy}, but the result is {y}")
    return (w,)


def _deform_conv(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X, W, offset [N, regions * taps * 2, *out], [B], [mask [N, regions * taps, *out]]."""
    x, w = _data_and_weights(inputs)
    if x.rank != 4:
        raise ModelError(f"deformable convolution is defined for 2 spatial axes, not {x.rank - 2}")
    (result,) = _conv((x, w, inputs[3] if len(inputs) > 3 else None), attributes)
    groups = integer(attributes, "offset_group", 1)
    if groups < 1 or x.shape[1] % groups:
        raise ModelError(f"{x.shape[1]} channels do not split into {groups} offset groups")
    points = groups * prod(w.shape[2:])
    for index, channels, what in ((2, 2 * points, "offset"), (4, points, "mask")):
        expected = result.with_shape((x.shape[0], channels, *result.shape[2:]))
        given = inputs[index] if index < len(inputs) else None
        if given != expected and not (given is None and what == "mask"):
            raise ModelError(f"the {what} is {given}, expected {expected}")
    return (result,)


def _deform_conv_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY, X, W, offset, [mask]: the gradients of the last three, or four."""
    dy, x, w, offset = (operand(inputs, index) for index in range(4))
    mask = optional_operand(inputs, 4)
    if _deform_conv((x, w, offset, None, mask), attributes) != (dy,):
        raise ModelError(f"the gradient is {dy}, which is not the type of the result")
    return (x, w, offset) if mask is None else (x, w, offset, mask)


def _col2im(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """[N, C * taps, blocks] to [N, C, *image_shape]."""
    x = operand(inputs, 0)
    image, block = integers(attributes, "image_shape"), integers(attributes, "block_shape")
    if x.rank != 3:
        raise ModelError(f"the columns must have 3 dimensions, not {x.rank}")
    if len(image) != len(block):
        raise ModelError(f"image_shape has {len(image)} entries, but block_shape {len(block)}")
    taps = prod(block)
    if taps < 1 or x.shape[1] % taps:
        raise ModelError(f"{x.shape[1]} column elements are not whole blocks of {list(block)}")
    blocks = prod(window_attributes(attributes, len(image)).outputs(image, block))
    if x.shape[2] != blocks:
        raise ModelError(f"there are {x.shape[2]} columns, but the image has {blocks} blocks")
    return (x.with_shape((x.shape[0], x.shape[1] // taps, *image)),)


OPS: Final[dict[str, OpSpec]] = {
    "Col2Im": OpSpec(_col2im),
    "Conv": OpSpec(_conv, strided_output=True),
    "ConvTranspose": OpSpec(_conv_transpose),
    "ConvWeightsGrad": OpSpec(_weights_grad),
    "DeformConv": OpSpec(_deform_conv, strided_input=False),
    "DeformConvGrad": OpSpec(_deform_conv_grad, strided_input=False),
}
