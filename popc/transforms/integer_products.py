"""Multiply quantised matrices as the integers that they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import produced_by
from popc_runtime.format import Array, DType

__all__ = ["IntegerProducts"]

_LONGEST: Final = (2**31 - 1) // 255**2  # sums of as many products of bytes never overflow


@dataclass(frozen=True)
class IntegerProducts(RewritePass):
    """A product of two dequantised matrices is an integer product, scaled.

    The sums are exact, where those of dequantised floats were rounded again and again.  Weights
    stay bytes.  The right matrix may have a scale for each column.

    Before::

        %a = DequantizeLinear(%p, float32(0.1), uint8(128)) dtype='float32'
        %b = DequantizeLinear(%q, float32(0.2)) dtype='float32'
        %y = MatMul(%a, %b)

    After::

        %s = MatMulInteger(%p, %q, uint8(128)) dtype='float32'
        %y = Mul(%s, float32(0.02))
    """

    name: ClassVar[str] = "integer_products"

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace ``op``; `DeadCode` removes what nobody reads any more."""
        if op.op_type != "MatMul" or not _is_plain(op):
            return False
        left, right = _bytes_of(op.operand(0)), _bytes_of(op.operand(1), by_column=True)
        if left is None or right is None or not 0 < left.integers.type.shape[-1] <= _LONGEST:
            return False
        zeros = [_constant(graph, one.zero, one.integers.type.dtype) for one in (left, right)]
        attributes: AttributeMap = {"dtype": DType.FLOAT32.value}
        inputs = [left.integers, right.integers, *zeros]
        sums = build(graph, "MatMulInteger", inputs, attributes, settings=op.settings)
        scale = _constant(graph, left.scale * right.scale, DType.FLOAT32)
        scaled = build(graph, "Mul", [sums.output, scale], settings=op.settings)
        graph.replace_op(op, scaled.outputs)
        return True


@dataclass(frozen=True)
class _Bytes:
    """What a dequantised matrix is made of: ``(integers - zero) * scale``."""

    integers: Tensor
    scale: Array
    zero: Array | None


def _is_plain(op: Op) -> bool:
    """Whether ``op`` is a product of matrices in float32, and nothing else."""
    matrices = len(op.inputs) == 2 and min(one.type.rank for one in op.inputs if one) >= 2
    return matrices and op.attributes.get("partials_type", "float") == "float"


def _bytes_of(tensor: Tensor, *, by_column: bool = False) -> _Bytes | None:
    """The integers behind ``tensor``, if constants for the whole of it scale them.

    Args:
        tensor: A matrix, or several.
        by_column: Whether there may be constants for each column instead.
    """
    op = produced_by(tensor, "DequantizeLinear")
    if op is None or tensor.type.dtype is not DType.FLOAT32:
        return None
    integers, scale, zero = op.operand(0), op.operand(1).data, op.optional(2)
    offset = None if zero is None else zero.data
    if integers.type.dtype not in (DType.INT8, DType.UINT8) or scale is None:
        return None
    if scale.dtype != np.float32 or (zero is not None and offset is None):
        return None
    if scale.size > 1 and not (by_column and _is_by_column(op, scale)):
        return None
    shape = scale.shape if scale.size > 1 else ()
    if offset is not None:
        offset = offset.reshape(shape) if offset.any() else None
    return _Bytes(integers, scale.reshape(shape), offset)


def _is_by_column(dequantize: Op, scale: Array) -> bool:
    last = dequantize.output.type.rank - 1
    return scale.ndim == 1 and dequantize.attributes.get("axis") == last


def _constant(graph: Graph, data: Array | None, dtype: DType) -> Tensor | None:
    if data is None:
        return None
    array = np.asarray(data)
    return graph.add_constant("c", TensorType(dtype, array.shape), array)
