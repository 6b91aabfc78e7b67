"""Top-k and unique values."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.problems import DataDependent
from popc.frontend.rules.common import default_domain, known_scalar, known_values
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.format import Array

__all__ = ["RULES"]


def _top_k(node: Node) -> list[Tensor]:
    """Up to opset 9, k is an attribute.  ``sorted`` is ignored: sorted is one of any orders."""
    x = node.input(0)
    k = node.integer("k") if node.version < 10 else known_scalar(node, 1)
    if k is None:
        raise DataDependent("TopK: the output shape depends on a run-time value")
    attributes = {
        "axis": normal_axis(node.integer("axis", -1), x.type.rank),
        "k": int(k),
        "largest": int(bool(node.integer("largest", 1))),
    }
    return node.emit_all("TopK", [x], attributes)


def _unique(node: Node) -> list[Tensor]:
    """ONNX Unique-11: values, first places, inverse, counts; unsorted means by first place."""
    node.require_known(0, "the output shape")
    values = known_values(node, 0)
    assert values is not None
    axis = normal_axis(node.integer("axis"), values.ndim) if node.has("axis") else None
    unique, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not node.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        unique = np.take(unique, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return [
        node.constant(unique, node.input(0).type.dtype),
        *(_int64(node, places) for places in (first, inverse.reshape(-1), counts)),
    ]


def _int64(node: Node, array: Array) -> Tensor:
    return node.constant(np.asarray(array, np.int64))


RULES: Final = default_domain({"TopK": _top_k, "Unique": _unique})
