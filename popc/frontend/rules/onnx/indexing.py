"""Gather, one-hot, selection by index or mask."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.problems import DataDependent
from popc.frontend.rules.common import default_domain, known_scalar, known_values
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES", "emit_one_hot"]


def _gather(node: Node) -> Tensor:
    x, indices = node.input(0), node.input(1)
    axis = _axis(node, x)
    known = node.known(1)
    if known is None:
        return node.emit("Gather", [x, indices], {"axis": axis})
    return _gather_known(node, x, known, axis)


def _gather_known(node: Node, x: Tensor, indices: Array, axis: int) -> Tensor:
    """Evenly spaced indices, a single one above all, are a slice: a view instead of a copy."""
    _check_range(indices, x.type.shape[axis])
    run = _as_range(indices.reshape(-1) % max(x.type.shape[axis], 1))
    if run is None:
        table = node.constant(np.asarray(indices, np.int64))
        return node.emit("Gather", [x, table], {"axis": axis})
    windows = [range(dim) for dim in x.type.shape]
    windows[axis] = run
    part = emit_slice(node, x, windows)
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    return emit_reshape(node, part, (*before, *indices.shape, *after))


def _as_range(indices: Array) -> range | None:
    """The range that lists ``indices`` (1-D, not negative) in order, if there is one."""
    if indices.size == 0:
        return range(0)
    first, last = int(indices[0]), int(indices[-1])
    if indices.size == 1:
        return range(first, first + 1)
    step = int(indices[1]) - first
    if step == 0 or bool((np.diff(indices.astype(np.int64)) != step).any()):
        return None
    return range(first, last + (1 if step > 0 else -1), step)


def _check_range(indices: Array, dim: int) -> None:
    wrong = indices[(indices < -dim) | (indices >= dim)]
    if wrong.size:
        raise ModelError(f"index {wrong.flat[0]} is out of range for a dimension of size {dim}")


def _axis(node: Node, x: Tensor) -> int:
    return normal_axis(node.integer("axis", 0), x.type.rank)


def _gather_elements(node: Node) -> Tensor:
    x, indices = node.input(0), node.input(1)
    return node.emit("GatherElements", [x, indices], {"axis": _axis(node, x)})


def _gather_nd(node: Node) -> Tensor:
    batch_dims = node.integer("batch_dims", 0)
    return node.emit("GatherND", node.tensors(), {"batch_dims": batch_dims})


def _one_hot(node: Node) -> Tensor:
    indices, values = node.input(0), node.input(2)
    depth = known_scalar(node, 1)
    if depth is None:
        raise DataDependent("OneHot: the output shape depends on a run-time value")
    return emit_one_hot(node, indices, values, int(depth))


def emit_one_hot(node: Node, indices: Tensor, values: Tensor, depth: int) -> Tensor:
    """One of ``values`` for each index and number below ``depth``."""
    if not indices.type.dtype.is_integer:
        indices = node.emit("Cast", [indices], {"to": DType.INT64.value})
    axis = normal_axis(node.integer("axis", -1), indices.type.rank + 1)
    return node.emit("OneHot", [indices, values], {"axis": axis, "depth": depth})


def _compress(node: Node) -> Tensor:
    x = node.input(0)
    condition = node.require_known(1, "the output shape").reshape(-1)
    axis = 0
    if node.has("axis"):
        axis = _axis(node, x)
    else:
        x = emit_reshape(node, x, (x.type.size,))
    return _gather_known(node, x, np.flatnonzero(condition), axis)


def _non_zero(node: Node) -> Tensor:
    """ONNX NonZero-13: a scalar has no coordinates, hence no rows."""
    node.require_known(0, "the output shape")
    values = known_values(node, 0)
    assert values is not None
    places = np.argwhere(values).T if values.ndim else np.zeros((0, int(bool(values))), np.int64)
    return node.constant(np.asarray(places, np.int64))


RULES: Final = default_domain(
    {
        "Compress": _compress,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "NonZero": _non_zero,
        "OneHot": _one_hot,
    }
)
