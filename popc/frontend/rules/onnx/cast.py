"""Conversions between element types."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, default_domain
from popc.frontend.tensors import dtype_from_onnx, dtype_from_onnx_name
from popc.ir import Tensor

__all__ = ["RULES"]


def _bit_cast(node: Node) -> Tensor:
    x, dtype = node.input(0), dtype_from_onnx(node.integer("to"))
    return x if x.type.dtype is dtype else node.emit("BitCast", [x], {"to": dtype.value})


def _cast(node: Node) -> Tensor:
    """``round_mode`` concerns only powers of two in eight bits, which popc does not have."""
    if node.version < 6:
        dtype = dtype_from_onnx_name(node.text("to"))
    else:
        dtype = dtype_from_onnx(node.integer("to"))
    return converted(node, node.input(0), dtype, saturates=bool(node.integer("saturate", 1)))


def _cast_like(node: Node) -> Tensor:
    saturates = bool(node.integer("saturate", 1))
    return converted(node, node.input(0), node.input(1).type.dtype, saturates=saturates)


RULES: Final = default_domain(
    {
        "BitCast": _bit_cast,
        "Cast": _cast,
        "CastLike": _cast_like,
    }
)
