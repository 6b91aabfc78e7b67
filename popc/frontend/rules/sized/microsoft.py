"""Operators of com.microsoft of which data decides a size: what onnxruntime fuses and quantises.

Each is as the standard operators that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.node import RuleResult
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


def _product(node: SizedNode) -> RuleResult:
    if any(node.integer(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        raise node.refuse("is transposed")
    return spread.RULES["MatMul"](node)


def _convolution(node: SizedNode) -> RuleResult:
    if node.optional_value(_ADDED) is not None:
        raise node.refuse("adds a tensor")
    return windows.RULES["Conv"](node)


RULES: Final[dict[str, SizedRule]] = {
    **dict.fromkeys(
        (
            *("BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QLinearLeakyRelu"),
            *("QLinearSigmoid", "QuantizeLinear", "QuickGelu"),
        ),
        spread.RULES["QuantizeLinear"],
    ),
    "FusedConv": _convolution,
    "FusedGemm": spread.RULES["Gemm"],
    "FusedMatMul": _product,
    "QLinearAdd": _of_quantised_pair,
    "QLinearMul": _of_quantised_pair,
}
