"""Operators that compute every element, row or image by itself: padding stays padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from popc.frontend.rules.onnx.indexing import emit_one_hot
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES", "along_axis", "product", "rows_by_matrix", "spread_together"]


def spread_together(
    node: SizedNode, values: Sequence[SizedValue | None], last: int = 0
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Operands whose shapes spread over each other, and the sizes of what they spread to.

    Operands are cut to the smallest padding along each axis; ``last`` axes are left alone, and
    have no size in the result.

    Raises:
        ModelError: a size is certainly another.
    """
    present = [(index, value) for index, value in enumerate(values) if value is not None]
    rank = max(len(value.counts) for _, value in present) - last
    tensors = {index: value.padded for index, value in present}
    counts: list[Tensor | None] = []
    for place in range(rank):
        own = [(index, x, place - (rank + last - len(x.counts))) for index, x in present]
        counts.append(along_axis(node, tensors, [each for each in own if each[2] >= 0]))
    return [tensors.get(index) for index in range(len(values))], counts


def along_axis(
    node: SizedNode, tensors: dict[int, Tensor], places: Sequence[tuple[int, SizedValue, int]]
) -> Tensor | None:
    """The size that operands have in common, each at an axis; all are cut to it.

    ``places`` are an operand's number in ``tensors``, its sizes, and the axis.
    """
    moving = [each for each in places if each[1].counts[each[2]] is not None]
    if not moving:
        return None
    still = [
        value.padded.type.shape[axis]
        for _, value, axis in places
        if value.counts[axis] is None and value.padded.type.shape[axis] != 1
    ]
    if still:
        for index, value, axis in moving:
            size = node.count(value, axis)
            tensors[index] = node.exactly(tensors[index], axis, size, still[0])
        return None
    count = node.count(*moving[0][1:])
    for _, value, axis in moving[1:]:
        count = node.same(count, node.count(value, axis))
    bound = min(value.padded.type.shape[axis] for _, value, axis in moving)
    for index, _, axis in moving:
        tensors[index] = node.cropped(tensors[index], axis, bound)
    return count


def _elementwise(node: SizedNode) -> Sequence[Value | None]:
    tensors, counts = spread_together(node, node.operands())
    return [node.value_of(result, counts) for result in node.plain(tensors)]


def _rows(node: SizedNode) -> Sequence[Value | None]:
    """Only the first axis, of the first operand, may have a size that data decides."""
    first, others = node.first_sized()
    if any(first.counts[1:]):
        raise node.refuse("takes sizes that data decides along the first axis only")
    results = node.plain([first.padded, *others])
    return [node.value_of(r, (first.counts[0], *(None,) * (r.type.rank - 1))) for r in results]


def _before_axis(default: int) -> SizedRule:
    """A rule for results computed along ``axis`` and, in older opsets, all behind."""

    def rule(node: SizedNode) -> Sequence[Value | None]:
        x, *others = node.operands()
        assert x is not None
        rank = len(x.counts)
        axis = node.integer("axis", default) % max(rank, 1)
        if any(x.counts[axis:]) or any(o is not None and any(o.counts) for o in others):
            raise node.refuse("takes sizes that data decides in front of its axis only")
        tensors = [x.padded, *(None if other is None else other.padded for other in others)]
        results = node.plain(tensors)
        return [
            node.value_of(r, x.counts if r.type.rank == rank else (None,) * r.type.rank)
            for r in results
        ]

    return rule


def _matmul(node: SizedNode) -> Value:
    return product(node, node.sized(0), node.sized(1), lambda pair: node.plain(pair)[0])


def product(
    node: SizedNode,
    left: SizedValue,
    right: SizedValue,
    multiply: Callable[[Sequence[Tensor | None]], Tensor],
) -> Value:
    """A product of matrices, by a function of tensors.

    Padding along the summed axis becomes zeros in both factors: padding may hold NaNs.
    """
    ranks = len(left.counts), len(right.counts)
    summed = ranks[0] - 1, max(ranks[1] - 2, 0)
    a, b = node.masked(left, 0, [summed[0]]), node.masked(right, 0, [summed[1]])
    if left.counts[summed[0]] is not None or right.counts[summed[1]] is not None:
        _require_same_sum(node, (left, summed[0]), (right, summed[1]))
        size = min(a.type.shape[summed[0]], b.type.shape[summed[1]])
        a, b = node.cropped(a, summed[0], size), node.cropped(b, summed[1], size)
    if min(ranks) < 2:
        outer = right.counts[:-2] + right.counts[-1:] if ranks[0] == 1 else left.counts[:-1]
        return node.value_of(multiply([a, b]), outer if max(ranks) > 1 else ())
    pairs = [SizedValue(a, left.counts), SizedValue(b, right.counts)]
    tensors, counts = spread_together(node, pairs, last=2)
    return node.value_of(multiply(tensors), [*counts, left.counts[-2], right.counts[-1]])


def _require_same_sum(
    node: SizedNode, left: tuple[SizedValue, int], right: tuple[SizedValue, int]
) -> None:
    """Sums are of as many terms in both factors, which nothing would notice at run time."""
    a, b = node.size(*left), node.size(*right)
    if a != b:
        raise node.refuse("the summed axes of its operands may have different sizes")


def _gemm(node: SizedNode) -> Value:
    """Rows of the first factor, unless it is transposed."""
    a, others = node.first_sized()
    kept = 1 if node.integer("transA", 0) else 0
    if a.counts[1 - kept] is not None:
        raise node.refuse("the summed axes of its operands may have different sizes")
    bias = others[1] if len(others) > 1 else None
    if bias is not None and bias.type.rank == 2 and bias.type.shape[0] != 1:
        raise node.refuse("its bias has rows, of which data decides the number")
    (result,) = node.plain([a.padded, *others])
    if result.type.rank != 2:
        raise ModelError("the result must be a matrix")
    return node.value_of(result, (a.counts[kept], None))


def _one_hot(node: SizedNode) -> Value:
    """Indices below zero count from the depth, which data may decide too."""
    indices, depth = node.sized(0), node.as_int64(node.scalar(1))
    places, bound, count = node.masked(indices, 0), node.table.scalar(depth).known, None
    if bound is None:
        count, bound = node.planned(depth)
        places = node.as_int64(places)
        places = _from_front(node, places, count, bound)
    result = emit_one_hot(node, places, node.input(2), bound)
    axis = node.integer("axis", -1) % result.type.rank
    counts = [*indices.counts]
    counts.insert(axis, count)
    return node.value_of(result, counts)


def _from_front(node: SizedNode, places: Tensor, size: Tensor, outside: int) -> Tensor:
    """Places below zero from the front; ``outside`` for those in front of it."""
    zero = node.int64(0)
    counted = node.emit("Add", [places, size])
    counted = node.emit("Where", [node.emit("Less", [counted, zero]), node.int64(outside), counted])
    return node.emit("Where", [node.emit("Less", [places, zero]), counted, places])


def _by_first(node: SizedNode) -> Value:
    """Every element by itself, or by its place; other operands have sizes of their own."""
    x, others = node.first_sized()
    (result,) = node.plain([x.padded, *others])
    return node.value_of(result, x.counts)


def _drawn(node: SizedNode) -> Value:
    """Random numbers, enough for the largest size."""
    value = node.sized(0)
    (drawn,) = node.plain([value.padded])
    return node.value_of(drawn, value.counts)


def _quantize_by_range(node: SizedNode) -> list[Value]:
    """The range holds 0 in any case, so that zeros change nothing."""
    x = node.sized(0)
    result, scale, zero_point = node.plain([node.masked(x, 0)])
    return [node.value_of(result, x.counts), scale, zero_point]


def rows_by_matrix(place: int, rank: int = 2, padding: float | None = None) -> SizedRule:
    """A rule for products of rows, in as many batches as there are, by one matrix.

    It is the operand at ``place``, of as many dimensions as ``rank`` says.  Where all rows are
    looked at, those that do not count have to be ``padding``.
    """

    def rule(node: SizedNode) -> Value:
        x, others = node.first_sized()
        if x.counts[-1] is not None or node.integer("transA", 0):
            raise node.refuse("takes sizes that data decides for rows of its first operand only")
        if node.input(place).type.rank != rank:
            raise node.refuse("takes sizes that data decides for products by one matrix only")
        rows = x.padded if padding is None else node.masked(x, padding)
        (result,) = node.plain([rows, *others])
        return node.value_of(result, (*x.counts[:-1], None))

    return rule


def _identity(node: SizedNode) -> Value:
    return node.value(0)


_ELEMENTWISE: Final = (
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu"),
    *("Clip", "Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp"),
    *("Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN"),
    *("LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul"),
    *("Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round"),
    *("Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub"),
    *("Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
)
_OF_ROWS: Final = (
    *("DepthToSpace", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool"),
    *("SpaceToDepth", "Upsample"),
)

RULES: Final[dict[str, SizedRule]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_OF_ROWS, _rows),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"), _drawn),
    "DequantizeLinear": _by_first,
    "DynamicQuantizeLinear": _quantize_by_range,
    "Gemm": _gemm,
    "Identity": _identity,
    "LayerNormalization": _before_axis(-1),
    "LpNormalization": _before_axis(-1),
    "MatMul": _matmul,
    "MatMulInteger": rows_by_matrix(1),
    "OneHot": _one_hot,
    "QLinearMatMul": rows_by_matrix(3),
    "QuantizeLinear": _by_first,
    "RMSNormalization": _before_axis(-1),
    "SimplifiedLayerNormalization": _before_axis(-1),  # what onnxruntime's tools fuse
    "Trilu": _by_first,
}
