"""Products and convolutions of integers."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, along
from popc.transforms.batch_serialization.rules.matmul import product
from popc_runtime.kernels.parts.byte_operands import BIAS, RESIDUAL, SCALE

__all__ = ["RULES"]


def _matmul_integer(case: Case) -> Cut | str:
    """Zero points that are no single numbers may lie along the batch."""
    if any(case.has(index) and case.op.operand(index).type.size != 1 for index in (2, 3)):
        return "it has a zero point for each row or column"
    return product(case, (SCALE, BIAS, RESIDUAL))


RULES: Final[dict[str, Rule]] = {
    "ConvInteger": along({0: 0, RESIDUAL: 0}, (0,)),
    "MatMulInteger": _matmul_integer,
}
