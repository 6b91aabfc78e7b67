"""Fused and general operators of com.microsoft, as optimisers and exporters emit them.

The schemas of this domain are not part of onnx, so defaults of attributes are given here.
Quantised operators, normalisations and attention have files of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules import conv
from popc.frontend.rules.common import ONNX, standard_op
from popc.frontend.rules.moves import emit_reshape, emit_transpose
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError

__all__ = ["MICROSOFT", "RULES", "activated", "contrib_domain", "plus", "times"]

MICROSOFT: Final = "com.microsoft"

# Attributes of an activation: its parameters in order, with their defaults
_ACTIVATIONS: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "LeakyRelu": (("alpha", 0.01),),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}


def plus(node: Node, x: Tensor, bias: Tensor | None) -> Tensor:
    """``x + bias``, or ``x`` if there is no bias."""
    return x if bias is None else node.emit("Add", [x, bias])


def times(node: Node, x: Tensor, factor: float) -> Tensor:
    """``x`` multiplied by a number."""
    return x if factor == 1 else node.emit("Mul", [x, node.constant(factor, x.type.dtype)])


def activated(node: Node, x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    """``x`` after the activation of a fused operator; the name "" stands for none."""
    if name == "":
        return x
    if name == "Clip":
        limits = [node.constant(value, x.type.dtype) for value in parameters]
        return standard_op(node, "Clip", [x, *limits])
    if name not in _ACTIVATIONS:
        raise ModelError(f"activation {name!r} is not known")
    attributes = dict(_ACTIVATIONS[name])
    attributes.update(zip(attributes, parameters, strict=False))
    return standard_op(node, name, [x], attributes)


# -- products and convolutions -------------------------------------------------------------------


def _fused_matmul(node: Node) -> Tensor:
    """MatMul of operands whose axes are moved first; the result is multiplied by alpha."""
    operands = [_with_axes_moved(node, index, side) for index, side in enumerate("AB")]
    return times(node, node.emit("MatMul", operands), node.number("alpha", 1.0))


def _with_axes_moved(node: Node, index: int, side: str) -> Tensor:
    """transBatch: [M, batch..., K] -> [batch..., M, K]; trans swaps the last two axes after it."""
    x = node.input(index)
    axes = list(range(x.type.rank))
    if len(axes) > 1 and node.integer(f"transBatch{side}", 0):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if len(axes) > 1 and node.integer(f"trans{side}", 0):
        axes[-2:] = axes[-1], axes[-2]
    return emit_transpose(node, x, tuple(axes))


def _fused_gemm(node: Node) -> Tensor:
    attributes = {
        "transA": node.integer("transA", 0),
        "transB": node.integer("transB", 0),
        "alpha": node.number("alpha", 1.0),
        "beta": node.number("beta", 1.0),
    }
    y = standard_op(node, "Gemm", [node.input(0), node.input(1), node.optional(2)], attributes)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [node.number(name) for name in names if node.has(name)]
    return activated(node, y, node.text("activation", ""), parameters)


def _fused_conv(node: Node) -> Tensor:
    """Conv, then a sum with the optional operand Z, then an activation."""
    y = node.emit("Identity", [])
    return y


def contrib_domain(rules: dict[str, object]) -> None: ...
