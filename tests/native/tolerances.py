"""How far results of native kernels may be from those of numpy.

Integers, and floats that are a single rounding or a move, agree to the bit.  Other functions of
single elements agree to some units in the last place of the largest result; sums, and differences
of what is nearly the same, to as many of the largest operand if that is larger.  What is said of
reductions and matrices, for each result by what it is made of, is in `bounds`.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from popc_runtime.format import DType

__all__ = ["is_exact", "is_relative_to_operands", "of_many_roundings", "tolerance"]

_FUNCTION: Final = 2.0**-21
_SUM: Final = 2.0**-18
_EXACT: Final = frozenset(
    {
        *("Abs", "Add", "ArgMax", "ArgMin", "Cast", "Ceil", "Clip", "Concat", "Copy", "Div"),
        *("Equal", "Expand", "Floor", "Gather", "GatherElements", "GatherND", "Greater"),
        *("GreaterOrEqual", "HardSwishGrad", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max"),
        *("MaxPool", "Min", "Mul", "Neg", "OneHot", "Pad", "ReduceMax", "ReduceMin", "Relu"),
        *("Reshape", "Round", "Sign", "Slice", "Split", "Sqrt", "Sub", "Tile", "TopK", "Transpose"),
        *("Where",),
    }
)
_SUMS: Final = frozenset(
    {
        *("Attention", "AttentionGrad", "AveragePool", "AveragePoolGrad", "BatchNormalization"),
        *("BatchNormalizationGrad", "BatchNormalizationTraining", "Conv", "ConvTranspose"),
        *("ConvWeightsGrad", "CumSum", "Gelu", "Gemm", "GridSample", "GRU", "LayerNormalization"),
        *("GroupNormalization", "GroupNormalizationGrad"),
        *("InstanceNormalization", "InstanceNormalizationGrad"),
        *("ExpertMatMul", "ExpertMatMulNBits"),
        *("DeformConv", "GridSampleGrad", "GridSampleGridGrad"),
        *("Ctc", "CumProdGrad", "LambSquare"),
        *(
            "LayerNormalizationGrad",
            "LogSoftmax",
            "LSTM",
            "MatMul",
            "MatMulNBits",
            "ReduceMean",
            "ReduceSum",
        ),
        *("RMSNormalization", "RMSNormalizationGrad", "Resize", "ResizeGrad", "Softmax"),
        *("Softplus", "TanhGrad"),
    }
)
_BYTE: Final = 2.0**-7  # of what is rounded to bytes, which the last bit of a number decides
_DEVIATIONS: Final = 4  # the error of one result in sixteen thousand is larger
_UNITS: Final = {DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7, DType.FLOAT64: 2.0**-46}


def is_exact(opcode: str, dtype: DType) -> bool:
    """Whether results of ``dtype`` agree to the bit."""
    return not dtype.is_float or opcode in _EXACT


def of_many_roundings(opcode: str, dtype: DType, count: int) -> float:
    """What is allowed for results that so many roundings lead to, relative to what is rounded.

    These err by up to half a unit in the last place each, as often up as down: together, as the
    square root of their number.
    """
    unit = 2.0**-53 if dtype is DType.FLOAT64 else 2.0**-24
    return max(tolerance(opcode, dtype), _DEVIATIONS * sqrt(count) * unit)


def is_relative_to_operands(opcode: str) -> bool:
    """Whether results of ``opcode`` may be off by a part of the largest operand."""
    return opcode in _SUMS


def tolerance(opcode: str, dtype: DType) -> float:
    """What is allowed for results of ``opcode``, relative to the largest number."""
    if dtype is DType.FLOAT64:
        return _UNITS[dtype]
    if opcode == "DynamicQuantizeLSTM":
        return _BYTE
    return max(_SUM if opcode in _SUMS else _FUNCTION, _UNITS.get(dtype, 0.0))
