"""Matrix products and determinants."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node, RuleResult
from popc.frontend.rules.common import default_domain, same_op
from popc.frontend.rules.float8 import has_float8, scaled_product
from popc.frontend.rules.onnx.einsum import einsum
from popc.ir import Tensor

__all__ = ["RULES"]


def _gemm(node: Node) -> Tensor:
    """Before opset 7 broadcasting C was asked for by an attribute; it is the same broadcast."""
    attributes = {
        "transA": int(node.integer("transA", 0) != 0),
        "transB": int(node.integer("transB", 0) != 0),
        "alpha": node.number("alpha", 1.0),
        "beta": node.number("beta", 1.0),
    }
    return node.emit("Gemm", [node.input(0), node.input(1), node.optional(2)], attributes)


def _matmul(node: Node) -> RuleResult:
    return scaled_product(node, "MatMul", {}) if has_float8(node) else same_op(node)


RULES: Final = default_domain(
    {
        "Det": same_op,
        "Einsum": einsum,
        "Gemm": _gemm,
        "MatMul": _matmul,
    }
)
