"""Losses of classification."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.values import Value
from popc.ir import AttributeMap

__all__ = ["RULES"]


def _loss(node: Node) -> list[Value | None]:
    """``ignore_index`` is an attribute of the IR op only where the node has one."""
    attributes: AttributeMap = {"reduction": node.text("reduction")}
    if node.has("ignore_index"):
        attributes["ignore_index"] = node.integer("ignore_index")
    if node.op_type == "SoftmaxCrossEntropyLoss":
        attributes["log_prob"] = int(node.wants_output(1))
    operands = [node.input(0), node.input(1), node.optional(2)]
    return list(node.emit_all(node.op_type, operands, attributes))


RULES: Final = default_domain(
    {
        "NegativeLogLikelihoodLoss": _loss,
        "SoftmaxCrossEntropyLoss": _loss,
    }
)
