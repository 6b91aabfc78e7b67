"""Building blocks that import rules of several families share."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.ir import Tensor

__all__ = ["ONNX", "default_domain", "same_op"]

ONNX: Final = ""


def same_op(node: Node) -> Tensor:
    """An IR op of the same name over the same tensors, without attributes."""
    return node.emit(node.op_type, [node.optional(index) for index in range(len(node.inputs))])


def default_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of ai.onnx by op type, keyed as the rule table wants them."""
    return {(ONNX, op_type): rule for op_type, rule in rules.items()}
