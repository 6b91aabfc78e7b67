"""Conversions to and from floats of eight bits: PopART's operators, with its names of types."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.float8 import check_exponent
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.tensors import dtype_from_onnx
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

# PopART's names, beside the numbers of ONNX.
_NAMES: Final = {
    "FLOAT": DType.FLOAT32,
    "FLOAT16": DType.FLOAT16,
    "FLOAT8_143": DType.FLOAT8E4M3FNUZ,
    "FLOAT8_152": DType.FLOAT8E5M2FNUZ,
}


def _dtype(node: Node) -> DType:
    """The type that the attribute ``to`` names: PopART's name, or ONNX's number."""
    name = node.attributes.get("to")
    if isinstance(name, str):
        if name not in _NAMES:
            raise ModelError(f"to is {name!r}, expected one of {', '.join(_NAMES)}")
        return _NAMES[name]
    return dtype_from_onnx(node.integer("to"))


def _to_float(node: Node) -> Tensor:
    """``x * 2 ** log2_scale``."""
    check_exponent(node, 1)
    operands = [node.input(0), node.optional(1)]
    return node.emit("CastThenPow2Scale", operands, {"to": _dtype(node).value})


def _to_float8(node: Node) -> Tensor:
    """``x * 2 ** log2_scale``, rounded."""
    check_exponent(node, 1)
    operands = [node.input(0), node.optional(1)]
    attributes = {"to": _dtype(node).value, "saturate": node.integer("saturate", 1)}
    return node.emit("Pow2ScaleThenCast", operands, {**attributes})


RULES: Final = graphcore_domain(
    {
        "CastThenPow2Scale": takes(1, 2, _to_float),
        "Pow2ScaleThenCast": takes(1, 2, _to_float8),
    }
)
