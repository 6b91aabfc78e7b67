"""Caches of keys and values in floats, or in numbers of 8 or 4 bits with scales."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.moves import emit_reshape
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["CacheForm", "cache_form"]

_KINDS: Final = ("NONE", "PER_CHANNEL", "PER_TENSOR")


@frozen
class CacheForm:
    """The numbers in a cache [B, N, T, H]: floats, or whole ones of ``bits`` bits, by a scale."""

    bits: int
    scale: Tensor | None

    def stored(self, node: Node, x: Tensor) -> Tensor:
        """Keys or values as a cache holds them; of four bits, two in a byte, the low half first."""
        if self.scale is None:
            return x
        most = (1 << (self.bits - 1)) - 1
        steps = node.emit("Div", [converted(node, x, DType.FLOAT32), self.scale])
        limits = [node.constant(float(number), DType.FLOAT32) for number in (-most - 1, most)]
        whole = node.emit("Max", [node.emit("Round", [steps]), limits[0]])
        whole = node.emit("Min", [whole, limits[1]])
        if self.bits == 8:
            return converted(node, whole, DType.INT8)
        shifted = node.emit("Add", [whole, node.constant(float(most + 1), DType.FLOAT32)])
        codes = converted(node, shifted, DType.UINT8)
        *outer, size = x.type.shape
        pairs = emit_reshape(node, codes, (*outer, size // 2, 2))
        halves: AttributeMap = {"axis": len(outer) + 1, "split": (1, 1)}
        low, high = node.emit_all("Split", [pairs], halves)
        four = node.constant(4, DType.UINT8)
        high = node.emit("BitShift", [high, four], {"direction": "LEFT"})
        return emit_reshape(node, node.emit("BitwiseOr", [low, high]), (*outer, size // 2))

    def read(self, node: Node, x: Tensor, like: Tensor) -> Tensor:
        """The numbers in a cache as floats of the type of ``like``."""
        if self.scale is None:
            return x
        if self.bits == 4:
            *outer, size = x.type.shape
            shifts = node.constant([0, 4], DType.UINT8)
            spread = emit_reshape(node, x, (*outer, size, 1))
            shifted = node.emit("BitShift", [spread, shifts], {"direction": "RIGHT"})
            codes = node.emit("BitwiseAnd", [shifted, node.constant(15, DType.UINT8)])
            wide = converted(node, codes, DType.FLOAT32)
            wide = node.emit("Sub", [wide, node.constant(8.0, DType.FLOAT32)])
            x = emit_reshape(node, wide, (*outer, 2 * size))
        numbers = node.emit("Mul", [converted(node, x, DType.FLOAT32), self.scale])
        return converted(node, numbers, like.type.dtype)


def cache_form(node: Node, index: int, attribute: str) -> CacheForm:
    """The form of a cache whose scale is operand ``index``, as attributes of the node have it."""
    kind, scale = node.text(attribute, "NONE"), node.optional(index)
    if kind not in _KINDS:
        raise ModelError(f"{attribute} is {kind!r}, none of {', '.join(_KINDS)}")
    if kind == "NONE":
        return CacheForm(0, None)
    past = node.optional(3)
    bits = node.integer("kv_cache_bit_width", 0)
    dtype = {8: DType.INT8, 4: DType.UINT8}.get(bits)
    if dtype is None or scale is None or (past is not None and past.type.dtype is not dtype):
        raise ModelError(
            "caches of numbers are int8 with 8 bits or uint8 with 4, and have scales, "
            f"not {past and past.type} with {bits} bits"
        )
    scale = converted(node, scale, DType.FLOAT32)
    return CacheForm(bits, emit_reshape(node, scale, ()) if scale.type.size == 1 else scale)
