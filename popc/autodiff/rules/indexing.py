"""Gradients of Gather and its relatives: what was read several times adds up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Shape, Tensor
from popc.ir.attributes import integer
from popc_runtime.format import DType

__all__ = ["GRADIENTS"]


def _gather(b: Backward) -> Sequence[Tensor | None]:
    axis = integer(b.attributes, "axis")
    size = b.input(0).type.shape[axis]
    return [b.emit("GatherGrad", [b.grad(), b.input(1)], {"axis": axis, "size": size})]


def _gather_elements(b: Backward) -> Sequence[Tensor | None]:
    attributes = {**b.attributes, "reduction": "add"}
    zeros = b.zeros(b.input(0).type)
    return [b.emit("ScatterElements", [zeros, b.input(1), b.grad()], attributes)]


def _gather_nd(b: Backward) -> Sequence[Tensor | None]:
    indices = b.input(1)
    batch = indices.type.shape[: integer(b.attributes, "batch_dims")]
    if batch:
        coordinates = b.expand(
            _coordinates(b, batch, indices.type.rank), (*indices.type.shape[:-1], len(batch))
        )
        # Batch coordinates count from the front, others may count from the end: so does ScatterND.
        wide = b.cast(indices, DType.INT64)
        indices = b.emit("Concat", [coordinates, wide], {"axis": indices.type.rank - 1})
    zeros = b.zeros(b.input(0).type)
    return [b.emit("ScatterND", [zeros, indices, b.grad()], {"reduction": "add"})]


def _coordinates(b: Backward, batch: Shape, rank: int) -> Tensor:
    """[*batch, 1, ..., len(batch)]: the place of each batch element."""
    places = np.moveaxis(np.indices(batch), 0, -1)
    ones = (1,) * (rank - 1 - len(batch))
    return b.constant(places.reshape(*batch, *ones, len(batch)), DType.INT64)


def _one_hot(b: Backward) -> Sequence[Tensor | None]:
    """The off and the on value get the sums of the gradients where they stand."""
    g, values = b.grad(), b.input(1)
    sums = []
    for marks in ((1.0, 0.0), (0.0, 1.0)):
        mask = b.emit("OneHot", [b.input(0), b.constant(marks, g.type.dtype)], b.attributes)
        total = b.sum(b.mul(g, mask), range(g.type.rank))
        sums.append(b.reshape(total, (1,)))
    return [None, b.reshape(b.emit("Concat", sums, {"axis": 0}), values.type.shape)]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
}
