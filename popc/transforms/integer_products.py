"""Multiply quantised matrices, and convolve quantised images, as the integers that they are."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import are_moderate, produced_by
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = ["IntegerProducts"]

_LARGEST_PRODUCT: Final = 255**2  # of two uint8
_LONGEST: Final = (2**31 - 1) // _LARGEST_PRODUCT  # sums of as many products never overflow
_WINDOWS: Final = ("strides", "pads", "dilations", "group")


@frozen
class IntegerProducts(RewritePass):
    """A product of two dequantised matrices is an integer product, scaled; likewise convolutions.

    The sums are exact, where those of dequantised floats were rounded again and again.  Weights
    stay bytes.  The right matrix may have a scale for each column, weights of convolutions one for
    each channel of the result.  A bias of integers that were scaled like the sums is added to them.

    Before::

        %a = DequantizeLinear(%p, float32(0.1), uint8(128)) dtype='float32'
        %b = DequantizeLinear(%q, float32(0.2)) dtype='float32'
        %y = MatMul(%a, %b)

    After::

        %s = MatMulInteger(%p, %q, uint8(128)) dtype='float32'
        %y = Mul(%s, float32(0.02))
    """

    name: ClassVar[str] = "integer_products"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Conv", "MatMul", "Gemm"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace ``op``; `DeadCode` removes what nobody reads any more."""
        if op.op_type == "Conv":
            return _rewrite_conv(graph, op)
        if op.op_type == "MatMul" and _is_plain(op):
            return _rewrite_product(graph, op, op.operand(1), -1)
        if op.op_type == "Gemm" and _is_plain(op):
            return _rewrite_gemm(graph, op)
        return False


@frozen
class _Bytes:
    """The parts of a dequantised matrix: ``(integers - zero) * scale``."""

    integers: Tensor
    scale: Array
    zero: Array | None


def _is_plain(op: Op) -> bool:
    """True if ``op`` is a product of matrices, or several, in float32."""
    most = 3 if op.op_type == "Gemm" else 2
    matrices = (
        len(op.inputs) <= most and min(operand.type.rank for operand in op.present_inputs[:2]) >= 2
    )
    scaled = any(op.attributes.get(name, 1.0) != 1 for name in ("alpha", "beta"))
    plain = op.attributes.get("partials_type", "float") == "float"
    return matrices and plain and not scaled and not op.attributes.get("activation")


def _rewrite_gemm(graph: Graph, op: Op) -> bool:
    """A'B' + C with constant B, where C stays behind."""
    if op.attributes.get("transA", 0):
        return False
    turned = op.attributes.get("transB", 0)
    return _rewrite_product(graph, op, op.operand(1), 0 if turned else -1, op.optional(2))


def _rewrite_product(
    graph: Graph, op: Op, matrix: Tensor, axis: int, bias: Tensor | None = None
) -> bool:
    """Products with ``matrix``, which has its columns at ``axis``."""
    left, right = _bytes_of(op.operand(0)), _bytes_of(matrix, axis=axis)
    if left is None or right is None or not 0 < left.integers.type.shape[-1] <= _LONGEST:
        return False
    scale = _product(left.scale, right.scale)
    if scale is None:
        return False
    integers = right.integers
    if axis == 0:
        turn = build(graph, "Transpose", [integers], {"perm": (1, 0)}, settings=op.settings)
        integers = turn.output
    zeros = [_constant(graph, factor.zero, factor.integers.type.dtype) for factor in (left, right)]
    attributes: AttributeMap = {"dtype": DType.FLOAT32.value}
    inputs = [left.integers, integers, *zeros]
    sums = build(graph, "MatMulInteger", inputs, attributes, settings=op.settings)
    factor = _constant(graph, scale, DType.FLOAT32)
    result = build(graph, "Mul", [sums.output, factor], settings=op.settings)
    if bias is not None:
        result = build(graph, "Add", [result.output, bias], settings=op.settings)
    graph.replace_op(op, result.outputs)
    return True


def _rewrite_conv(graph: Graph, op: Op) -> bool:
    """The bias stays behind if it is not added to sums."""
    if len(op.inputs) > 3 or op.attributes.get("partials_type", "float") != "float":
        return False
    x, w, bias = _bytes_of(op.operand(0)), _bytes_of(op.operand(1), axis=0), op.optional(2)
    if x is None or w is None or w.integers.data is None or op.attributes.get("activation"):
        return False
    length = w.integers.type.size // w.integers.type.shape[0]
    if not 0 < length <= _LONGEST:
        return False
    scale, channels = _product(x.scale, w.scale), (-1,) + (1,) * (op.output.type.rank - 2)
    if scale is None:
        return False
    zero = w.zero if w.zero is None or w.zero.size == 1 else w.zero.reshape(*channels, 1)
    zeros = [
        _constant(graph, x.zero, x.integers.type.dtype),
        _constant(graph, zero, w.integers.type.dtype),
    ]
    whole = _whole_bias(bias, scale, length)
    attributes: AttributeMap = {
        name: value for name, value in op.attributes.items() if name in _WINDOWS
    }
    attributes["dtype"] = DType.FLOAT32.value
    inputs = [x.integers, w.integers, *zeros, whole]
    sums = build(graph, "ConvInteger", inputs, attributes, settings=op.settings)
    aligned = scale if scale.size == 1 else scale.reshape(channels)
    factor = _constant(graph, aligned, DType.FLOAT32)
    result = build(graph, "Mul", [sums.output, factor], settings=op.settings)
    if bias is not None and whole is None:
        shape: AttributeMap = {"shape": (bias.type.size, *channels[1:])}
        turned = build(graph, "Reshape", [bias], shape, settings=op.settings)
        result = build(graph, "Add", [result.output, turned.output], settings=op.settings)
    graph.replace_op(op, result.outputs)
    return True


def _product(one: Array, other: Array) -> Array | None:
    """The scales of sums; ``None`` if they, or factors, are none that products may wait for."""
    if not (are_moderate(one, DType.FLOAT32) and are_moderate(other, DType.FLOAT32)):
        return None
    product: Array = one * other
    return product if are_moderate(product, DType.FLOAT32) else None


def _whole_bias(bias: Tensor | None, scale: Array, length: int) -> Tensor | None:
    """The integers of a bias that was multiplied by ``scale``, if that is what it is.

    They have to be constants with which sums of ``length`` products cannot overflow.
    """
    op = produced_by(bias, "DequantizeLinear")
    if op is None or bias is None or op.operand(0).type.dtype is not DType.INT32:
        return None
    integers, own, zero = op.operand(0).data, op.operand(1).data, op.optional(2)
    if (
        integers is None
        or own is None
        or (zero is not None and (zero.data is None or zero.data.any()))
    ):
        return None
    same = own.size in (1, scale.size) and np.allclose(own.reshape(-1), scale.reshape(-1), 1e-6, 0)
    largest = int(np.abs(integers.astype(np.int64)).max(initial=0))
    fits = largest + length * _LARGEST_PRODUCT < 2**31
    return op.operand(0) if same and fits else None


def _bytes_of(tensor: Tensor, *, axis: int | None = None) -> _Bytes | None:
    """The integers behind ``tensor``, if constants for the whole of it scale them.

    Args:
        tensor: A matrix, or several, or an image.
        axis: Where there may be constants for each line instead.
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
    if scale.size > 1 and (axis is None or not _is_along(op, scale, axis)):
        return None
    shape = scale.shape if scale.size > 1 else ()
    if offset is not None:
        offset = offset.reshape(shape) if offset.any() else None
    return _Bytes(integers, scale.reshape(shape), offset)


def _is_along(dequantize: Op, scale: Array, axis: int) -> bool:
    place = axis % dequantize.output.type.rank
    return scale.ndim == 1 and dequantize.attributes.get("axis") == place


def _constant(graph: Graph, data: Array | None, dtype: DType) -> Tensor | None:
    if data is None:
        return None
    array = np.asarray(data)
    return graph.add_constant("c", TensorType(dtype, array.shape), array)
