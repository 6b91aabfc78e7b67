"""Gradients of counts, ranks and bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import Tensor
from popc.ir.attributes import integers

__all__ = ["GRADIENTS"]


def _median(b: Backward) -> Sequence[Tensor | None]:
    """The element that was chosen gets it all."""
    x = b.input(0)
    axes = sorted(axis % x.type.rank for axis in integers(b.attributes, "axes"))
    order = [*(axis for axis in range(x.type.rank) if axis not in axes), *axes]
    kept = tuple(x.type.shape[axis] for axis in order[: x.type.rank - len(axes)])
    count = x.type.size // max(b.output().type.size, 1)
    column = (*kept, 1)
    rows = b.emit(
        "ScatterElements",
        [
            b.zeros(x.type.with_shape((*kept, count))),
            b.reshape(b.output(1), column),
            b.reshape(b.grad(), column),
        ],
        {"axis": len(kept), "reduction": "none"},
    )
    moved = b.reshape(rows, tuple(x.type.shape[axis] for axis in order))
    return [b.transpose(moved, [order.index(axis) for axis in range(x.type.rank)])]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "BinCount": no_gradient,
    "Bucketize": no_gradient,
    "ReduceMedian": _median,
}
