"""Conversions between element types."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.tensors import dtype_from_onnx, dtype_from_onnx_name
from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = ["RULES"]


def _to(node: Node, dtype: DType) -> Tensor:
    x = node.input(0)
    return x if x.type.dtype is dtype else node.emit(node.op_type, [x], {"to": dtype.value})


def _cast(node: Node) -> Tensor:
    """``saturate`` and ``round_mode`` concern only 8-bit floats, which popc does not have."""
    if node.version < 6:
        return _to(node, dtype_from_onnx_name(node.text("to")))
    return _to(node, dtype_from_onnx(node.integer("to")))


def _cast_like(node: Node) -> Tensor:
    x, dtype = node.input(0), node.input(1).type.dtype
    return x if x.type.dtype is dtype else node.emit("Cast", [x], {"to": dtype.value})


RULES: Final = default_domain(
    {
        "BitCast": _cast,
        "Cast": _cast,
        "CastLike": _cast_like,
    }
)
