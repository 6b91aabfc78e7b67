"""Let quantised models do without the integers that they only pass through."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import produced_by, sole_output
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["FuseQuantization"]

_PRODUCTS: Final = ("ConvInteger", "MatMulInteger")
# Ops whose result holds nothing but elements of operand 0
_MOVES: Final = ("Expand", "Gather", "MaxPool", "Reshape", "Slice", "Transpose")


@frozen
class FuseQuantization(RewritePass):
    """Quantising and dequantising by one constant scale is a function from floats to floats.

    (Unless integer products read what is between.)  Only zeros keep signs that integers lose.

    Doing it again to elements that are only moved changes nothing.  An integer product that is
    converted to float32 is stored as float32 in the first place.

    Before::

        %q = QuantizeLinear(%x, float32(0.1), uint8(128)) dtype='uint8'
        %d = DequantizeLinear(%q, float32(0.1), uint8(128)) dtype='float32'

    After::

        %d = FakeQuantize(%x) high=127.0 low=-128.0 scale=0.1
    """

    name: ClassVar[str] = "fuse_quantization"
    rewrites: ClassVar[frozenset[str]] = frozenset({"DequantizeLinear", "FakeQuantize", "Cast"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace ``op``; `DeadCode` removes what nobody reads any more."""
        if op.op_type == "DequantizeLinear":
            return _fuse_pair(graph, op)
        if op.op_type == "FakeQuantize":
            return _drop_repetition(graph, op)
        if op.op_type == "Cast":
            return _fuse_conversion(graph, op)
        return False


def _fuse_pair(graph: Graph, op: Op) -> bool:
    quantize = produced_by(op.operand(0), "QuantizeLinear")
    if quantize is None or not _same_parameters(quantize, op) or _multiplies(quantize.output):
        return False
    x, scale, zero = quantize.operand(0), quantize.operand(1), quantize.optional(2)
    if x.type != op.output.type or scale.data is None or scale.type.dtype is not DType.FLOAT32:
        return False
    step = float(scale.data.reshape(()).item())
    if not 0 < step < float("inf"):
        return False
    limits = np.iinfo(quantize.output.type.dtype.storage)
    offset = 0 if zero is None or zero.data is None else int(zero.data.reshape(()).item())
    attributes: AttributeMap = {
        "scale": step,
        "low": float(limits.min - offset),
        "high": float(limits.max - offset),
    }
    new = build(graph, "FakeQuantize", [x], attributes, settings=op.settings)
    graph.replace_op(op, new.outputs)
    return True


def _multiplies(integers: Tensor) -> bool:
    """True if products read the integers, so that they are there anyway."""
    return any(user.op_type in _PRODUCTS for user in integers.uses)


def _same_parameters(quantize: Op, dequantize: Op) -> bool:
    """True if both ops have the same constant scale and zero point, for the whole tensor."""
    return all(
        _same_constant(quantize.optional(index), dequantize.optional(index)) for index in (1, 2)
    )


def _same_constant(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.data is None or other.data is None or one.type.size != 1:
        return False
    return one.type == other.type and one.data.tobytes() == other.data.tobytes()


def _drop_repetition(graph: Graph, op: Op) -> bool:
    source = op.operand(0)
    while (move := produced_by(source, *_MOVES)) is not None:
        source = move.operand(0)
    earlier = produced_by(source, "FakeQuantize")
    if earlier is None or earlier.attributes != op.attributes:
        return False
    graph.replace_op(op, [op.operand(0)])
    return True


def _fuse_conversion(graph: Graph, op: Op) -> bool:
    product = sole_output(graph, op.operand(0), *_PRODUCTS)
    if product is None or op.output.type.dtype is not DType.FLOAT32:
        return False
    attributes: AttributeMap = {**product.attributes, "dtype": DType.FLOAT32.value}
    settings = product.settings.fused(op.settings)
    new = build(graph, product.op_type, product.inputs, attributes, settings=settings)
    graph.replace_op(op, new.outputs)
    return True
