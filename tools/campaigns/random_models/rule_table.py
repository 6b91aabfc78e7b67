"""The rules of `rules`, by operator."""

from __future__ import annotations

from typing import Final

from tools.campaigns.random_models import rules_of_elements as elements
from tools.campaigns.random_models import rules_of_rows as rows
from tools.campaigns.random_models import rules_of_sums as sums
from tools.campaigns.random_models.rules import Rule
from tools.campaigns.random_models.rules_of_moves import (
    moved,
    pooled_maximum,
    refused_if_uncertain,
    scattered,
)

__all__ = ["RULES"]

_MOVES: Final = (
    *("Identity", "Reshape", "Transpose", "Slice", "Split", "Concat", "Expand", "Tile", "Squeeze"),
    *("Unsqueeze", "Flatten", "DepthToSpace", "SpaceToDepth", "Gather", "GatherElements"),
    *("GatherND", "Pad", "Trilu", "ReverseSequence", "Dropout"),
)
_COMPARISONS: Final = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_RISING: Final = (
    "Sigmoid",
    "Tanh",
    "Exp",
    "Log",
    "Sqrt",
    "Erf",
    "Softplus",
    "HardSigmoid",
)
_PIECEWISE: Final = ("Relu", "Clip", "LeakyRelu", "Softsign", "ThresholdedRelu")

RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_MOVES, moved),
    **dict.fromkeys(_COMPARISONS, elements.compared),
    **dict.fromkeys(_RISING, elements.between(elements.function)),
    **dict.fromkeys(("Celu", "Elu", "Selu"), elements.between(elements.less_one)),
    **dict.fromkeys(_PIECEWISE, elements.between(lambda step: 4 * elements.rounded(step))),
    **dict.fromkeys(
        ("Floor", "Ceil", "Round", "Sign", "QuantizeLinear"), elements.between(elements.nothing)
    ),
    **dict.fromkeys(("Cast",), elements.between(elements.rounded)),
    **dict.fromkeys(("Gelu", "Mish", "HardSwish", "Swish"), elements.steep(1.5, elements.function)),
    **dict.fromkeys(("Sin", "Cos"), elements.steep(1.0, elements.function)),
    **dict.fromkeys(("Abs", "Neg"), elements.steep(1.0, elements.nothing)),
    **dict.fromkeys(("Add", "Sub", "Sum"), elements.added),
    **dict.fromkeys(("Max", "Min"), elements.largest),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), elements.logical),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "GlobalAveragePool", "AveragePool"), sums.averaged),
    **dict.fromkeys(("ReduceL1", "ReduceL2"), sums.length),
    **dict.fromkeys(("ArgMax", "ArgMin"), rows.indices),
    **dict.fromkeys(("Softmax", "LogSoftmax"), rows.softmax),
    **dict.fromkeys(
        (
            "GroupNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "RMSNormalization",
        ),
        rows.normalized,
    ),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), rows.recurrent),
    **dict.fromkeys(("ScatterElements", "ScatterND"), scattered),
    **dict.fromkeys(
        ("Shape", "Size", "Mod", "BitShift", "OneHot", "ConvInteger"), refused_if_uncertain
    ),
    "BatchNormalization": rows.batch_normalized,
    "Conv": sums.products(sums.terms_of_conv),
    "ConvTranspose": sums.products(sums.terms_of_transposed),
    "CumSum": sums.averaged,
    "DequantizeLinear": elements.dequantized,
    "Div": elements.divided,
    "DynamicQuantizeLinear": sums.dynamically_quantized,
    "Gemm": sums.products(sums.terms_of_gemm),
    "Einsum": sums.products(sums.terms_of_matmul),
    "GlobalMaxPool": pooled_maximum,
    "MatMul": sums.products(sums.terms_of_matmul),
    "MaxPool": pooled_maximum,
    "LpPool": sums.length,
    "Mul": elements.multiplied,
    "Pow": elements.squared,
    "ReduceMax": pooled_maximum,
    "ReduceMin": sums.anywhere,
    "ReduceSumSquare": sums.sum_of_squares,
    "QLinearConv": sums.requantized,
    "QLinearMatMul": sums.requantized,
    "Resize": sums.resized,
    "Where": elements.chosen,
}
