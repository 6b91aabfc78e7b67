"""Products and convolutions of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.rules.moves import emit_reshape
from popc.frontend.rules.onnx.windows import kernel_shape, window_attribute_map
from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = [
    "RULES",
    "int_product",
    "matmul_zeros",
    "output_multiplier",
    "qlinear_conv",
    "requantize",
]


# -- scales and zero points ------------------------------------------------------------------------


def _per_row(node: Node, parameter: Tensor) -> Tensor:
    """A parameter of a left operand, made to broadcast: [M] stands for its rows."""
    if parameter.type.rank == 1 and parameter.type.size > 1:
        return emit_reshape(node, parameter, (parameter.type.size, 1))
    return _per_column(node, parameter)


def _per_column(node: Node, parameter: Tensor) -> Tensor:
    """A parameter of a right operand, made to broadcast: [N] stands for its columns."""
    return parameter if parameter.type.size > 1 else emit_reshape(node, parameter, ())


def _per_channel(node: Node, parameter: Tensor, rank: int) -> Tensor:
    """A parameter of output channels, made to broadcast: ``rank`` counts their axis and on."""
    if parameter.type.size == 1:
        return emit_reshape(node, parameter, ())
    return emit_reshape(node, parameter, (parameter.type.size, *(1,) * (rank - 1)))


def output_multiplier(node: Node, left: Tensor, right: Tensor, result: Tensor) -> Tensor:
    """The factor after an integer product: left scale * right scale / result scale."""
    scales = [_in_float32(node, scale) for scale in (left, right, result)]
    return node.emit("Div", [node.emit("Mul", scales[:2]), scales[2]])


def _in_float32(node: Node, scale: Tensor) -> Tensor:
    if scale.type.dtype is DType.FLOAT32:
        return scale
    return node.emit("Cast", [scale], {"to": DType.FLOAT32.value})


def requantize(node: Node, product: Tensor, multiplier: Tensor, zero: Tensor) -> Tensor:
    """An integer product multiplied, in the quantised type of ``zero``."""
    attributes = {"dtype": zero.type.dtype.value}
    return node.emit("Requantize", [product, multiplier, zero], attributes)


# -- products --------------------------------------------------------------------------------------


def matmul_zeros(
    node: Node, left: Tensor | None, right: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Zero points of the operands of a matrix product, made to broadcast."""
    return (
        None if left is None else _per_row(node, left),
        None if right is None else _per_column(node, right),
    )


def int_product(
    node: Node, a: Tensor, b: Tensor, zeros: Sequence[Tensor | None], dtype: DType = DType.INT32
) -> Tensor:
    """(a - zero) @ (b - zero), exact, and rounded once if ``dtype`` is float32."""
    return node.emit("MatMulInteger", [a, b, *zeros], {"dtype": dtype.value})


def _matmul_integer(node: Node) -> Tensor:
    zeros = matmul_zeros(node, node.optional(2), node.optional(3))
    return int_product(node, node.input(0), node.input(1), zeros)


def _qlinear_matmul(node: Node) -> Tensor:
    """Operands: a, scale, zero point; b, scale, zero point; scale and zero point of y."""
    a, b = node.input(0), node.input(3)
    zeros = matmul_zeros(node, node.input(2), node.input(5))
    product = int_product(node, a, b, zeros, DType.FLOAT32)
    left, result = (_per_row(node, node.input(index)) for index in (1, 6))
    multiplier = output_multiplier(node, left, _per_column(node, node.input(4)), result)
    return requantize(node, product, multiplier, node.input(7))


# -- convolutions ----------------------------------------------------------------------------------


def _conv_integer(node: Node) -> Tensor:
    x, w, zero, w_zero = node.input(0), node.input(1), node.optional(2), node.optional(3)
    return _int_conv(node, (x, w), (zero, w_zero), None, DType.INT32)


def qlinear_conv(node: Node, x: Tensor) -> Tensor:
    """QLinearConv of ``x`` in place of operand 0.

    Operands: x, scale, zero point; w, scale, zero point; scale and zero point of y; int32 bias.
    """
    w, zeros = node.input(3), (node.input(2), node.input(5))
    product = _int_conv(node, (x, w), zeros, node.optional(8), DType.FLOAT32)
    w_scale = _per_channel(node, node.input(4), x.type.rank - 1)
    scales = [emit_reshape(node, node.input(index), ()) for index in (1, 6)]
    multiplier = output_multiplier(node, scales[0], w_scale, scales[1])
    return requantize(node, product, multiplier, node.input(7))


def _qlinear_conv(node: Node) -> Tensor:
    return qlinear_conv(node, node.input(0))


def _int_conv(
    node: Node,
    operands: tuple[Tensor, Tensor],
    zeros: tuple[Tensor | None, Tensor | None],
    bias: Tensor | None,
    dtype: DType,
) -> Tensor:
    """Convolution of x - zero and w - zero, plus an int32 bias."""
    x, w = operands
    zero = None if zeros[0] is None else emit_reshape(node, zeros[0], ())
    w_zero = None if zeros[1] is None else _per_channel(node, zeros[1], w.type.rank)
    kernel = kernel_shape(node, w.type.shape)
    attributes = window_attribute_map(node, x.type.shape[2:], kernel)
    attributes |= {"group": node.integer("group", 1), "dtype": dtype.value}
    return node.emit("ConvInteger", [x, w, zero, w_zero, bias], attributes)


RULES: Final = default_domain(
    {
        "ConvInteger": _conv_integer,
        "MatMulInteger": _matmul_integer,
        "QLinearConv": _qlinear_conv,
        "QLinearMatMul": _qlinear_matmul,
    }
)
