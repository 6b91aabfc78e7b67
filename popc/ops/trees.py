"""Ensembles of decision trees.

`popc_runtime.kernels.trees` says what the operands are.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import check_choice, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_FLOATS: Final = (DType.FLOAT32, DType.FLOAT64)
_TABLES: Final = ("features", "children", "roots", "starts", "targets")


def _ensemble(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    features, thresholds, children, roots, starts, targets, weights = (
        operand(inputs, index) for index in range(1, 8)
    )
    check_choice(attributes, "aggregate", ("SUM", "MIN", "MAX"))
    if x.dtype not in _FLOATS or x.rank != 2:
        raise ModelError(f"needs rows of float32 or float64, not {x}")
    for name, table in zip(_TABLES, (features, children, roots, starts, targets), strict=True):
        if table.dtype is not DType.INT32 or table.rank != 1:
            raise ModelError(f"the table of {name} must be a list of int32, not {table}")
    for name, table in (("thresholds", thresholds), ("weights", weights)):
        if table.dtype is not x.dtype or table.rank != 1:
            raise ModelError(f"the {name} must be a list of {x.dtype}, not {table}")
    if not features.shape == thresholds.shape == children.shape:
        raise ModelError(
            f"nodes have {features.size} features, {thresholds.size} thresholds and "
            f"{children.size} children"
        )
    if targets.shape != weights.shape or starts.size == 0:
        raise ModelError(f"leaves have {targets.size} targets and {weights.size} weights")
    count = integer(attributes, "n_targets")
    if count < 1:
        raise ModelError(f"there must be a target, not {count}")
    return (x.with_shape((x.shape[0], count)),)


OPS: Final[dict[str, OpSpec]] = {"TreeEnsemble": OpSpec(_ensemble)}
