"""Pools and their gradients, whose batch is dimension 0."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, along

__all__ = ["RULES"]


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
    "LpPool": along({0: 0}, (0,)),
    "MaxPool": _without_positions,
    "MaxPoolGrad": along({0: 0, 1: 0, 2: 0}, (0,)),
}
