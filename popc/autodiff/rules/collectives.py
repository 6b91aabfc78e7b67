"""Gradients of exchange between replicas.

The loss is the sum of those of all replicas: what one replica gives to others comes back from all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import AttributeMap, Tensor
from popc.ir.attributes import integer, text
from popc_runtime.format import DType

__all__ = ["GRADIENTS"]


def _group(b: Backward) -> AttributeMap:
    return {name: integer(b.attributes, name) for name in ("size", "stride")}


def _added(b: Backward, x: Tensor) -> Tensor:
    """The sum over the group."""
    return b.emit("ReplicatedAllReduce", [x], {"op": "add", **_group(b)})


def _place(b: Backward) -> Tensor:
    """The place of the replica in its group, an int32 scalar."""
    index = b.emit("ReplicaIndex", [])
    size, stride = (
        b.constant(integer(b.attributes, key), DType.INT32) for key in ("size", "stride")
    )
    return b.emit("Mod", [b.div(index, stride), size], {"fmod": 0})


# -- reductions ------------------------------------------------------------------------------------


def _through(b: Backward, total: Tensor) -> Tensor:
    """The gradient of the operand of a reduction.

    ``total`` is the sum of the gradients of its result, in the operand's shape, on all replicas.
    """
    op, x = text(b.attributes, "op"), b.input(0)
    if op == "add":
        return total
    if op == "mean":
        return b.scaled(total, 1 / integer(b.attributes, "size"))
    if op == "square_add":
        return b.mul(total, b.scaled(x, 2.0))
    return b.mul(total, _others(b, x)) if op == "mul" else _extreme(b, x, total)


def _others(b: Backward, x: Tensor) -> Tensor:
    """The product of the operands of all others; some may be 0."""
    gathered = b.emit("ReplicatedAllGather", [x], _group(b))
    before, after = (
        b.emit("CumProd", [gathered], {"axis": 0, "exclusive": 1, "reverse": reverse})
        for reverse in (0, 1)
    )
    return b.emit("Gather", [b.mul(before, after), _place(b)], {"axis": 0})


def _extreme(b: Backward, x: Tensor, total: Tensor) -> Tensor:
    """Operands that equal the extreme share the gradient evenly."""
    dtype = x.type.dtype
    wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    attributes = {"op": text(b.attributes, "op"), **_group(b)}
    hits = b.emit("Equal", [x, b.emit("ReplicatedAllReduce", [x], attributes)])
    count = _added(b, b.cast(hits, wide))
    share = b.cast(b.div(b.cast(total, wide), count), dtype)
    return b.masked(hits, share)


def _all_reduce(b: Backward) -> Sequence[Tensor | None]:
    if text(b.attributes, "op") == "local":
        return [b.grad()]
    return [_through(b, _added(b, b.grad()))]


def _reduce_scatter(b: Backward) -> Sequence[Tensor | None]:
    """Gathered, the parts of the gradient are what an all-reduce would get."""
    x, size = b.input(0), integer(b.attributes, "size")
    grad = b.grad()
    if text(b.attributes, "op") == "local":
        own = b.reshape(
            b.emit("Equal", [b.constant(np.arange(size), DType.INT32), _place(b)]), (size, 1)
        )
        return [_unpadded(b, b.masked(own, b.reshape(grad, (1, grad.type.size))), x)]
    gathered = b.emit("ReplicatedAllGather", [grad], _group(b))
    return [_through(b, _unpadded(b, gathered, x))]


def _unpadded(b: Backward, rows: Tensor, x: Tensor) -> Tensor:
    """``rows`` in the shape of ``x``, without what they hold beyond its elements."""
    flat = b.reshape(rows, (rows.type.size,))
    return b.reshape(b.slice(flat, [range(x.type.size)]), x.type.shape)


# -- moves -----------------------------------------------------------------------------------------


def _all_gather(b: Backward) -> Sequence[Tensor | None]:
    """Each replica gets the sum of the gradients of its row."""
    part = b.emit("ReplicatedReduceScatter", [b.grad()], {"op": "add", **_group(b)})
    return [b.reshape(part, b.input(0).type.shape)]


def _all_to_all(b: Backward) -> Sequence[Tensor | None]:
    return [b.emit("AllToAll", [b.grad()], _group(b))]


def _broadcast(b: Backward) -> Sequence[Tensor | None]:
    """The replica whose operand was taken gets the gradients of all."""
    root = b.constant(integer(b.attributes, "root"), DType.INT32)
    total = _added(b, b.grad())
    return [b.masked(b.emit("Equal", [_place(b), root]), total)]


def _assume_equal(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad()]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "AllToAll": _all_to_all,
    "AssumeEqualAcrossReplicas": _assume_equal,
    "ReplicaIndex": no_gradient,
    "ReplicatedAllGather": _all_gather,
    "ReplicatedAllReduce": _all_reduce,
    "ReplicatedBroadcast": _broadcast,
    "ReplicatedReduceScatter": _reduce_scatter,
}
