"""Building blocks that import rules of several families share."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.ir import Tensor
from popc.ops.infer import normal_axis

__all__ = ["ONNX", "along_axis", "default_domain", "same_op"]

ONNX: Final = ""


def same_op(node: Node) -> Tensor:
    """An IR op of the same name over the same tensors, without attributes."""
    return node.emit(node.op_type, [node.optional(index) for index in range(len(node.inputs))])


def along_axis(node: Node) -> Tensor:
    """An IR op of the same name with attribute ``axis``, for Softmax and its kin.

    Before opset 13 these worked on everything from ``axis`` (default 1) on, as one dimension.
    """
    x = node.input(0)
    if node.version >= 13:
        return node.emit(node.op_type, [x], {"axis": normal_axis(node.integer("axis"), x.type.rank)})
    axis = node.integer("axis", 1)
    axis = x.type.rank if axis == x.type.rank else normal_axis(axis, x.type.rank)
    rows, columns = prod(x.type.shape[:axis]), prod(x.type.shape[axis:])
    flat = node.emit("Reshape", [x], {"shape": (rows, columns)})
    result = node.emit(node.op_type, [flat], {"axis": 1})
    return node.emit("Reshape", [result], {"shape": x.type.shape})


def default_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of ai.onnx by op type, keyed as the rule table wants them."""
    return {(ONNX, op_type): rule for op_type, rule in rules.items()}
