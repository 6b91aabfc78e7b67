"""Operators of com.microsoft of which data decides a size: what onnxruntime fuses and quantises.

Each is as the standard operators that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from popc.frontend.node import RuleResult
from popc.frontend.rules.microsoft.operators import factor_axes, scaled_product
from popc.frontend.rules.moves import emit_transpose
from popc.frontend.rules.sized import spread, windows
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.values import SizedValue, Value

__all__ = ["RULES"]

_SCALED: Final = 3  # a quantised operand, its scale and its zero point
_ADDED: Final = 3  # the operand of FusedConv that is added to its result


def _of_quantised_pair(node: SizedNode) -> Value:
    """Two operands that are broadcast, each with its scale and zero point, and those of the sum."""
    places = (0, _SCALED)
    pair: Sequence[SizedValue | None] = [node.sized(place) for place in places]
    tensors, counts = spread.spread_together(node, pair)
    others = list(map(node.optional_value, range(len(node.operands()))))
    if any(isinstance(value, SizedValue) for i, value in enumerate(others) if i not in places):
        raise node.refuse("has a scale of a size that data decides")
    operands = [
        tensors[places.index(index)] if index in places else node.optional(index)
        for index in range(len(others))
    ]
    (result,) = node.plain(operands)
    return node.value_of(result, counts)


def _product(node: SizedNode) -> Value:
    """MatMul of operands whose axes are moved first, and their sizes with them."""
    left, right = (_moved(node, index, side) for index, side in enumerate("AB"))
    return spread.product(node, left, right, partial(scaled_product, node))


def _moved(node: SizedNode, index: int, side: str) -> SizedValue:
    x = node.sized(index)
    axes = factor_axes(node, x.padded, side)
    return SizedValue(emit_transpose(node, x.padded, axes), tuple(x.counts[axis] for axis in axes))


def _convolution(node: SizedNode) -> RuleResult:
    if node.optional_value(_ADDED) is not None:
        raise node.refuse("adds a tensor")
    return windows.RULES["Conv"](node)


def _normalised_sum(node: SizedNode) -> list[Value | None]:
    """Each row of a sum by itself."""
    tensors, counts = spread.spread_together(node, node.operands())
    if counts[-1] is not None:
        raise node.refuse("takes sizes that data decides in front of its last axis only")
    results = node.plain_or_none(tensors)
    return [None if result is None else node.value_of(result, counts) for result in results]


def _gathered_rows(node: SizedNode) -> Value:
    """Padding among the indices becomes 0, which every table has."""
    table, index, *others = node.operands()
    if table is None or index is None or any(o is not None and any(o.counts) for o in others):
        raise node.refuse("takes sizes that data decides for its indices only")
    scales = [None if other is None else other.padded for other in others]
    (result,) = node.plain([table.padded, node.masked(index, 0), *scales])
    return node.value_of(result, (*index.counts, None))


RULES: Final[dict[str, SizedRule]] = {
    **dict.fromkeys(
        (
            *("BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QLinearLeakyRelu"),
            *("QLinearSigmoid", "QuantizeLinear", "QuickGelu"),
        ),
        spread.RULES["QuantizeLinear"],
    ),
    # Rows are quantised by the range of them all, which holds 0.
    "DynamicQuantizeMatMul": spread.rows_by_matrix(1, padding=0),
    "FusedConv": _convolution,
    "FusedGemm": spread.RULES["Gemm"],
    "FusedMatMul": _product,
    "GatherBlockQuantized": _gathered_rows,
    "MatMulIntegerToFloat": spread.rows_by_matrix(1),
    "MatMulNBits": spread.rows_by_matrix(1, rank=3),
    "QGemm": spread.rows_by_matrix(3),
    "QLinearAdd": _of_quantised_pair,
    "QLinearMul": _of_quantised_pair,
    "SkipLayerNormalization": _normalised_sum,
    "SkipSimplifiedLayerNormalization": _normalised_sum,
}
