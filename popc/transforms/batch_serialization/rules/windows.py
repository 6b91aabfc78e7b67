"""Convolutions and pools, whose batch is dimension 0, and what else has its batch at fixed axes."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Rule, along
from popc_runtime.kernels.parts.byte_operands import RESIDUAL

__all__ = ["RULES"]

_SUM: Final = Combination.SUM


def _without_positions(case: Case) -> Cut | str:
    """Positions in the flattened operand count the samples before."""
    if len(case.op.outputs) > 1:
        return "the positions that it gives count all samples"
    return along({0: 0}, (0,))(case)


def _with_shape(case: Case) -> Cut | str:
    """Attribute ``shape`` is that of the result."""
    if case.axis(0) != 0:
        return "its operand is cut along another axis than its batch"
    return case.cut({0: 0}, (0,), {"shape": case.part_shape(case.integers("shape"), 0)})


RULES: Final[dict[str, Rule]] = {
    "AveragePool": along({0: 0}, (0,)),
    "AveragePoolGrad": _with_shape,
    "Col2Im": along({0: 0}, (0,)),
    "Conv": along({0: 0, 3: 0}, (0,)),
    "ConvInteger": along({0: 0, RESIDUAL: 0}, (0,)),
    "ConvTranspose": along({0: 0}, (0,)),
    "ConvWeightsGrad": along({0: 0, 1: 0}, (_SUM,)),
    "DeformConv": along({0: 0, 2: 0, 4: 0}, (0,)),
    "DeformConvGrad": along({0: 0, 1: 0, 3: 0, 4: 0}, (0, _SUM, 0, 0)),
    "GridSample": along({0: 0, 1: 0}, (0,)),
    "GridSampleGrad": along({0: 0, 1: 0}, (0,)),
    "GridSampleGridGrad": along({0: 0, 1: 0, 2: 0}, (0,)),
    "LpPool": along({0: 0}, (0,)),
    "MaxPool": _without_positions,
    "MaxPoolGrad": along({0: 0, 1: 0, 2: 0}, (0,)),
    "STFT": along({0: 0}, (0,)),
}
