"""Products and convolutions of quantised tensors."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = ["RULES", "output_multiplier", "per_column", "per_row", "requantize"]


def per_row(node: Node, parameter: Tensor | None) -> Tensor | None:
    """A scale or zero point of a left operand, made to broadcast: [M] stands for its rows."""
    if parameter is None or parameter.type.size == 1:
        return per_column(node, parameter)
    if parameter.type.rank == 1:
        return node.emit("Reshape", [parameter], {"shape": (parameter.type.size, 1)})
    return parameter


def per_column(node: Node, parameter: Tensor | None) -> Tensor | None:
    """A scale or zero point of a right operand, made to broadcast: [N] stands for its columns."""
    if parameter is None or parameter.type.size > 1 or parameter.type.rank == 0:
        return parameter
    return node.emit("Reshape", [parameter], {"shape": ()})


def requantize(node: Node, product: Tensor, multiplier: Tensor, zero: Tensor) -> Tensor:
    """An integer product scaled to the quantised type of ``zero``."""
    attributes = {"dtype": zero.type.dtype.value}
    return node.emit("Requantize", [product, multiplier, zero], attributes)


def output_multiplier(node: Node, left: Tensor, right: Tensor, result: Tensor) -> Tensor:
    """What an integer product is multiplied by: left scale * right scale / result scale."""
    scales = [_in_float32(node, scale) for scale in (left, right, result)]
    return node.emit("Div", [node.emit("Mul", scales[:2]), scales[2]])


def _in_float32(node: Node, scale: Tensor) -> Tensor:
    if scale.type.dtype is DType.FLOAT32:
        return scale
    return node.emit("Cast", [scale], {"to": DType.FLOAT32.value})


def _matmul_integer(node: Node) -> Tensor:
    zeros = [per_row(node, node.optional(2)), per_column(node, node.optional(3))]
    attributes = {"dtype": DType.INT32.value}
    return node.emit("MatMulInteger", [node.input(0), node.input(1), *zeros], attributes)
