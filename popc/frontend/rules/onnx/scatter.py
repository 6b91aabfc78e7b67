"""Scatter: a tensor with some elements replaced or combined."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import Tensor
from popc.ops.infer import normal_axis

__all__ = ["RULES"]


def _scatter_elements(node: Node) -> Tensor:
    """Also the old Scatter, which is the same without reductions."""
    axis = normal_axis(node.integer("axis", 0), node.input(0).type.rank)
    reduction = node.text("reduction", "none")
    return node.emit("ScatterElements", node.tensors(), {"axis": axis, "reduction": reduction})


def _scatter_nd(node: Node) -> Tensor:
    reduction = node.text("reduction", "none")
    return node.emit("ScatterND", node.tensors(), {"reduction": reduction})


def _tensor_scatter(node: Node) -> Tensor:
    operands = [node.input(0), node.input(1), node.optional(2)]
    axis = normal_axis(node.integer("axis", -2), node.input(0).type.rank)
    mode = node.text("mode", "linear")
    return node.emit("TensorScatter", operands, {"axis": axis, "mode": mode})


RULES: Final = default_domain(
    {
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "TensorScatter": _tensor_scatter,
    }
)
