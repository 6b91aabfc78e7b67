"""Quantised operators of com.microsoft.

Those that onnxruntime computes with tables or fixed-point factors are defined as dequantise,
compute in floats, quantise: they are imported like this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op, standard_ops
from popc.frontend.rules.microsoft.attention import attend_packed
from popc.frontend.rules.microsoft.norm import embedded
from popc.frontend.rules.microsoft.operators import (
    WINDOW_ATTRIBUTES,
    channels_first,
    channels_last,
    microsoft_domain,
    passed_on,
    plus,
    times,
)
from popc.frontend.rules.moves import emit_reshape, emit_transpose
from popc.frontend.rules.onnx.integer import (
    int_product,
    matmul_zeros,
    qlinear_conv,
    requantize,
)
from popc.frontend.rules.onnx.quantize import dequantize_linear, quantize_linear
from popc.frontend.rules.onnx.rnn import LSTM_ACTIVATIONS, layer_attributes, layer_lengths
from popc.frontend.values import Value
from popc.ir import AttributeMap, Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]


def _dequantized(node: Node, index: int) -> Tensor:
    """Operand ``index`` by the scale and zero point that follow it, one for the whole tensor."""
    x, scale, zero = node.input(index), node.input(index + 1), node.optional(index + 2)
    attributes = {"axis": 0, "block_size": 0, "dtype": scale.type.dtype.value}
    return node.emit("DequantizeLinear", [x, scale, zero], attributes)


def _quantized(node: Node, x: Tensor, index: int, dtype: DType) -> Tensor:
    """``x`` by the scale in operand ``index`` and the zero point that follows it."""
    attributes = {"axis": 0, "block_size": 0, "dtype": dtype.value}
    operands = [x, node.input(index), node.optional(index + 1)]
    return node.emit("QuantizeLinear", operands, attributes)


# -- elementwise, pooling and movement -------------------------------------------------------------


def _binary(op_type: str) -> Callable[[Node], Tensor]:
    def rule(node: Node) -> Tensor:
        y = node.emit(op_type, [_dequantized(node, 0), _dequantized(node, 3)])
        return _quantized(node, y, 6, node.input(0).type.dtype)

    return rule


def _unary(op_type: str, *names: str) -> Callable[[Node], Tensor]:
    def rule(node: Node) -> Tensor:
        y = standard_op(node, op_type, [_dequantized(node, 0)], passed_on(node, names))
        return _quantized(node, y, 3, node.input(0).type.dtype)

    return rule


def _pool(op_type: str) -> Callable[[Node], Tensor]:
    def rule(node: Node) -> Tensor:
        last = node.integer("channels_last", 0) != 0
        x = _dequantized(node, 0)
        x = channels_first(node, x) if last else x
        attributes = passed_on(node, WINDOW_ATTRIBUTES)
        if node.integer("count_include_pad", 0) and node.integer("ceil_mode", 0):
            attributes |= _whole_windows(node, x.type.shape[2:])
        y = standard_op(node, op_type, [x], attributes)
        y = channels_last(node, y) if last else y
        return _quantized(node, y, 3, node.input(0).type.dtype)

    return rule


def _whole_windows(node: Node, sizes: Shape) -> dict[str, int | Sequence[int]]:
    """Padding that windows at the end do not reach beyond: all of their elements count."""
    if node.text("auto_pad", "NOTSET") != "NOTSET":
        return {}
    kernel = node.integers("kernel_shape")
    rank = len(kernel)
    strides = node.integers("strides", (1,) * rank)
    pads = node.integers("pads", (0,) * 2 * rank)
    ends = []
    for axis, (size, window, stride) in enumerate(zip(sizes, kernel, strides, strict=True)):
        begin, end = pads[axis], pads[rank + axis]
        count = -(-(size + begin + end - window) // stride)
        if count * stride >= size + begin:  # a window of padding alone is left out
            count -= 1
        ends.append(max(end, count * stride + window - size - begin))
    return {"pads": [*pads[:rank], *ends], "ceil_mode": 0}


def _softmax(node: Node) -> Tensor:
    """Below opset 13, of everything from the axis on together."""
    x = _dequantized(node, 0)
    shape = x.type.shape
    axis = normal_axis(node.integer("axis", -1), x.type.rank)
    if node.integer("opset") < 13:
        rows = x.type.size
        for dim in shape[axis:]:
            rows //= max(dim, 1)
        x = emit_reshape(node, x, (rows, x.type.size // max(rows, 1)))
        axis = 1
    y = emit_reshape(node, node.emit("Softmax", [x], {"axis": axis}), shape)
    return _quantized(node, y, 3, node.input(0).type.dtype)


def _reduce_mean(node: Node) -> Tensor:
    x = _dequantized(node, 0)
    axes = node.integers("axes", ()) or range(x.type.rank)
    attributes: AttributeMap = {
        "axes": tuple(sorted(normal_axis(axis, x.type.rank) for axis in axes)),
        "keepdims": node.integer("keepdims", 1),
    }
    return _quantized(node, node.emit("ReduceMean", [x], attributes), 3, node.input(0).type.dtype)


def _where(node: Node) -> Tensor:
    """Operands: condition; x, scale, zero point; y, scale, zero point; scale, zero point."""
    branches = [_dequantized(node, 1), _dequantized(node, 4)]
    chosen = node.emit("Where", [node.input(0), *branches])
    return _quantized(node, chosen, 7, node.input(1).type.dtype)


def _concat(node: Node) -> Tensor:
    """Operands after scale and zero point of the result: x, scale, zero point of each part."""
    dtype = node.input(2).type.dtype
    parts = [_requantized(node, index, dtype) for index in range(2, len(node.inputs), 3)]
    axis = normal_axis(node.integer("axis"), parts[0].type.rank)
    return node.emit("Concat", parts, {"axis": axis})


def _requantized(node: Node, index: int, dtype: DType) -> Tensor:
    """A part with the scale of the result: as it is if its own is known to be the same."""
    known = [node.known(i) for i in (0, index + 1, 1, index + 2)]
    scale, own_scale, zero, own_zero = (None if v is None else v.reshape(-1)[0] for v in known)
    if scale is not None and scale == own_scale and zero is not None and zero == own_zero:
        return node.input(index)
    return _quantized(node, _dequantized(node, index), 0, dtype)


# -- products --------------------------------------------------------------------------------------


def _qlinear_conv(node: Node) -> Tensor:
    """QLinearConv with channels last, if asked for."""
    if not node.integer("channels_last", 0):
        return qlinear_conv(node, node.input(0))
    return channels_last(node, qlinear_conv(node, channels_first(node, node.input(0))))


def _qgemm(node: Node) -> Tensor:
    """Scaled a @ b + c, where c has the scale of the product; floats if y has no scale.

    Operands: a, scale, zero point; b, scale, zero point; int32 c; scale and zero point of y.
    """
    a, b = (
        emit_transpose(node, node.input(index), (1, 0))
        if node.integer(name, 0)
        else node.input(index)
        for index, name in ((0, "transA"), (3, "transB"))
    )
    c, zeros = node.optional(6), matmul_zeros(node, node.input(2), node.input(5))
    product = int_product(node, a, b, zeros, DType.FLOAT32 if c is None else DType.INT32)
    product = plus(node, product, c)
    scale = times(node, node.emit("Mul", [node.input(1), node.input(4)]), node.number("alpha", 1.0))
    if node.optional(7) is not None:
        multiplier = node.emit("Div", [scale, node.input(7)])
        return requantize(node, product, multiplier, node.input(8))
    if c is not None:
        product = node.emit("Cast", [product], {"to": DType.FLOAT32.value})
    return node.emit("Mul", [product, scale])


def _matmul_integer_to_float(node: Node) -> Tensor:
    """(a - zero) @ (b - zero) * a_scale * b_scale + bias."""
    zeros = matmul_zeros(node, node.optional(4), node.optional(5))
    product = int_product(node, node.input(0), node.input(1), zeros, DType.FLOAT32)
    return _scaled_product(node, product, node.input(2), node.input(3), node.optional(6))


def _dynamic_quantize_matmul(node: Node) -> Tensor:
    """MatMulIntegerToFloat of an operand that is quantised by its range first."""
    a, scale, zero = node.emit_all("DynamicQuantizeLinear", [node.input(0)])
    zeros = matmul_zeros(node, zero, node.optional(3))
    product = int_product(node, a, node.input(1), zeros, DType.FLOAT32)
    return _scaled_product(node, product, scale, node.input(2), node.optional(4))


def _scaled_product(
    node: Node, product: Tensor, left: Tensor, right: Tensor, bias: Tensor | None
) -> Tensor:
    scale = node.emit("Mul", [left, right])
    return plus(node, node.emit("Mul", [product, scale]), bias)


def _qattention(node: Node) -> list[Value | None]:
    """Attention whose first product is of integers.

    Operands: input, weights, bias, input scale, weight scale, mask, zero points, past.
    """
    if node.integer("do_rotary", 0):
        raise ModelError("rotary embedding is not supported here")
    zeros = matmul_zeros(node, node.optional(6), node.optional(7))
    product = int_product(node, node.input(0), node.input(1), zeros, DType.FLOAT32)
    packed = _scaled_product(node, product, node.input(3), node.input(4), node.input(2))
    return attend_packed(node, packed, node.optional(5), node.optional(8), None)


def _qembed_layer_normalization(node: Node) -> list[Value | None]:
    """EmbedLayerNormalization of quantised tables: operands 2 to 6, scales 8.., zero points 13.."""

    def dequantized(x: Tensor, index: int) -> Tensor:
        scale, zero = node.input(index + 6), node.input(index + 11)
        attributes = {"axis": 0, "block_size": 0, "dtype": scale.type.dtype.value}
        return node.emit("DequantizeLinear", [x, scale, zero], attributes)

    def rows(table: int, index: Tensor) -> Tensor:
        return dequantized(node.emit("Gather", [node.input(table), index], {"axis": 0}), table)

    gamma, beta = (dequantized(node.input(index), index) for index in (5, 6))
    return embedded(node, rows, gamma, beta, None)


def _dynamic_quantize_lstm(node: Node) -> list[Value | None]:
    """LSTM with weights [D, in, 4 * H] of bytes, which meet rows that are rounded to bytes.

    Weights that are not known are dequantised, and nothing is rounded.
    """
    operands = [node.optional(index) for index in range(8)]
    if all(node.known(index) is not None for index in (1, 2, 8, 9, 10, 11)):
        (w, *of_w), (r, *of_r) = _byte_weights(node, 1, 8), _byte_weights(node, 2, 10)
        lengths = layer_lengths(node, batch_first=False)
        rest = [*operands[3:4], lengths, *operands[5:], *of_w, *of_r]
        attributes = layer_attributes(node, LSTM_ACTIVATIONS)
        return [*node.emit_all("DynamicQuantizeLSTM", [operands[0], w, r, *rest], attributes)]
    operands[1:3] = (_lstm_weights(node, index, scale) for index, scale in ((1, 8), (2, 10)))
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction",
             "hidden_size", "input_forget")  # fmt: skip
    return [*standard_ops(node, "LSTM", operands, passed_on(node, names), outputs=3)]


def _byte_weights(node: Node, index: int, scale_index: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Known weights as rows of int8, their scales, and their zero points if one is not 0."""
    weights = node.require_known(index, "weights")
    if weights.ndim != 3:
        raise ModelError(f"weights must have 3 dimensions, not {weights.ndim}")
    directions, _, rows = weights.shape
    parameters: list[Array] = []
    for place, what in ((scale_index, "scale"), (scale_index + 1, "zero point")):
        values = node.require_known(place, what)
        if values.size not in (directions, directions * rows):
            raise ModelError(f"{what} must be one for each direction or row, not {values.size}")
        parameters.append(np.repeat(values, directions * rows // max(values.size, 1)))
    shift = 128 if weights.dtype == np.uint8 else 0
    scale, zero = (array.reshape(directions, rows) for array in parameters)
    matrix, zero = (
        np.subtract(array, shift, dtype=np.int16).astype(np.int8)
        for array in (np.ascontiguousarray(weights.transpose(0, 2, 1)), zero)
    )
    return node.constant(matrix), node.constant(scale), node.constant(zero) if zero.any() else None


def _lstm_weights(node: Node, index: int, scale_index: int) -> Tensor:
    """[D, in, 4 * H] less zero points, times scales of shape [D] or [D, 4 * H], transposed."""
    weights = node.input(index)
    directions, rows, _ = weights.type.shape
    scale, zero = (
        emit_reshape(node, tensor, (directions, 1, tensor.type.size // directions))
        for tensor in (node.input(scale_index), node.input(scale_index + 1))
    )
    shape = (directions, 1, weights.type.shape[2])
    scale, zero = (
        tensor if tensor.type.shape == shape else node.emit("Expand", [tensor], {"shape": shape})
        for tensor in (scale, zero)
    )
    attributes = {"axis": 1, "block_size": rows, "dtype": scale.type.dtype.value}
    return emit_transpose(
        node, node.emit("DequantizeLinear", [weights, scale, zero], attributes), (0, 2, 1)
    )


RULES: Final = microsoft_domain(
    {
        "DequantizeLinear": dequantize_linear,
        "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
        "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
        "MatMulIntegerToFloat": _matmul_integer_to_float,
        "QAttention": _qattention,
        "QEmbedLayerNormalization": _qembed_layer_normalization,
        "QGemm": _qgemm,
        "QLinearAdd": _binary("Add"),
        "QLinearAveragePool": _pool("AveragePool"),
        "QLinearConcat": _concat,
        "QLinearConv": _qlinear_conv,
        "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
        "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
        "QLinearMul": _binary("Mul"),
        "QLinearReduceMean": _reduce_mean,
        "QLinearSigmoid": _unary("Sigmoid"),
        "QLinearSoftmax": _softmax,
        "QLinearWhere": _where,
        "QuantizeLinear": quantize_linear,
    }
)
