"""Pad."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import (
    default_domain,
    integers_of,
    known_scalar,
    required_integers,
)
from popc.ir import Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError

__all__ = ["RULES", "emit_pad"]

_SHAPE: Final = "the output shape"


def _pad(node: Node) -> Tensor:
    """Opset 1 calls the pads ``paddings``; up to opset 10 they are attributes, as is the value."""
    x = node.input(0)
    pads = required_integers(node, 1, "paddings" if node.version < 2 else "pads", _SHAPE)
    pads = _spread_pads(pads, integers_of(node, 3, "axes", _SHAPE), x.type.rank)
    return emit_pad(node, x, pads)


def emit_pad(node: Node, x: Tensor, pads: Shape) -> Tensor:
    """``x`` with begins and ends of all axes, in the mode and with the constant of ``node``."""
    if not any(pads):
        return x
    mode = node.text("mode", "constant")
    pads = _crop_what_there_is(pads, x.type.shape, mode)
    if node.version < 11:
        return node.emit("Pad", [x], {"pads": pads, "mode": mode, "value": node.number("value")})
    value = node.optional(2)
    if value is None or mode != "constant":
        return node.emit("Pad", [x], {"pads": pads, "mode": mode, "value": 0})
    known = known_scalar(node, 2)
    if known is None:
        return node.emit("Pad", [x, value], {"pads": pads, "mode": mode})
    return node.emit("Pad", [x], {"pads": pads, "mode": mode, "value": known})


def _spread_pads(pads: Shape, axes: Shape | None, rank: int) -> Shape:
    """``pads`` of some axes as begins and ends of all axes."""
    if axes is None:
        axes = tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise ModelError(f"needs {2 * len(axes)} pads, not {len(pads)}")
    spread = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        place = normal_axis(axis, rank)
        spread[place], spread[place + rank] = pads[index], pads[index + len(axes)]
    return tuple(spread)


def _crop_what_there_is(pads: Shape, shape: Shape, mode: str) -> Shape:
    """``pads`` that take no more than an axis has, where no element of it is left anyway.

    The shape of the result is the sum of dimension and pads.  So an axis that loses more than it
    has consists of the pad value alone, and is as long as that sum; a sum of 0 needs no value.
    Anything else is left for the type rule to refuse.
    """
    rank = len(shape)
    begins, ends = list(pads[:rank]), list(pads[rank:])
    for axis, dim in enumerate(shape):
        begin, end = begins[axis], ends[axis]
        result = dim + begin + end
        takes_too_much = dim + min(begin, 0) + min(end, 0) < 0
        if takes_too_much and (result == 0 or (mode == "constant" and result > 0)):
            begins[axis], ends[axis] = -dim, result
    return (*begins, *ends)


RULES: Final = default_domain({"Pad": _pad})
