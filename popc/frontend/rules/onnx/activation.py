"""Activation functions, natively even where ONNX defines them by a function body."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import default_domain, known_scalar, same_op
from popc.ir import AttributeMap, Tensor

__all__ = ["RULES"]

_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


def _with_numbers(*names: str) -> ImportRule:
    """An IR op of the same name with the listed float attributes (the schema has defaults)."""

    def rule(node: Node) -> Tensor:
        attributes: AttributeMap = {name: node.number(name) for name in names}
        return node.emit(node.op_type, [node.input(0)], attributes)

    return rule


def _gelu(node: Node) -> Tensor:
    return node.emit("Gelu", [node.input(0)], {"approximate": node.text("approximate")})


def _clip(node: Node) -> Tensor:
    """Bounds are attributes before opset 11, operands since; known ones become attributes."""
    if node.version < 11:
        return _clip_by_attributes(node)
    x = node.input(0)
    bounds: AttributeMap = {}
    run_time: list[tuple[str, Tensor]] = []
    for index, name in ((1, "min"), (2, "max")):
        bound = node.optional(index)
        if bound is None:
            continue
        value = known_scalar(node, index)
        if value is None or run_time:  # the upper bound must be applied last: it wins
            run_time.append(("Max" if name == "min" else "Min", _scalar(node, bound)))
        else:
            bounds[name] = value
    if bounds:
        x = node.emit("Clip", [x], bounds)
    for op_type, bound in run_time:
        x = node.emit(op_type, [x, bound])
    return x


def _clip_by_attributes(node: Node) -> Tensor:
    """The defaults since opset 6, the ends of float32, are taken for no bound."""
    low, high = node.number("min", -_FLOAT32_MAX), node.number("max", _FLOAT32_MAX)
    bounds: AttributeMap = {}
    if low > -_FLOAT32_MAX:
        bounds["min"] = low
    if high < _FLOAT32_MAX:
        bounds["max"] = high
    return node.emit("Clip", [node.input(0)], bounds) if bounds else node.input(0)


def _scalar(node: Node, tensor: Tensor) -> Tensor:
    """A bound given as one element of higher rank must not raise the rank of the result."""
    return tensor if tensor.type.rank == 0 else node.emit("Reshape", [tensor], {"shape": ()})


def _prelu(node: Node) -> Tensor:
    """Before opset 7 a slope of one dimension was per channel, not broadcast from the right."""
    x, slope = node.input(0), node.input(1)
    if node.version < 7 and slope.type.rank == 1 and slope.type.size > 1 and x.type.rank > 1:
        shape = slope.type.shape + (1,) * (x.type.rank - 2)
        slope = node.emit("Reshape", [slope], {"shape": shape})
    return node.emit("PRelu", [x, slope])


RULES: Final = default_domain(
    {
        "Celu": _with_numbers("alpha"),
        "Clip": _clip,
        "Elu": _with_numbers("alpha"),
        "Erf": same_op,
        "Gelu": _gelu,
        "HardSigmoid": _with_numbers("alpha", "beta"),
        "HardSwish": same_op,
        "LeakyRelu": _with_numbers("alpha"),
        "Mish": same_op,
        "PRelu": _prelu,
        "Relu": same_op,
        "Selu": _with_numbers("alpha", "gamma"),
        "Shrink": _with_numbers("bias", "lambd"),
        "Sigmoid": same_op,
        "Softplus": same_op,
        "Softsign": same_op,
        "Swish": _with_numbers("alpha"),
        "Tanh": same_op,
        "ThresholdedRelu": _with_numbers("alpha"),
    }
)
