"""Zeros around tensors."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.transforms.rules.rule import LocalRule, sole_nearby

__all__ = ["RULES", "zero_pad"]


def zero_pad(graph: Graph, op: Op, tensor: Tensor) -> Op | None:
    """The Pad with zeros behind an operand, if it only adds elements."""
    pad = sole_nearby(graph, op, tensor, "Pad")
    if pad is None or pad.attributes["mode"] != "constant":
        return None
    zero = len(pad.present_inputs) == 1 and pad.attributes.get("value", 0) == 0
    return pad if zero and min(integers(pad.attributes, "pads"), default=0) >= 0 else None


def _padded_windows(graph: Graph, op: Op) -> Tensor | None:
    """Windows of a convolution that reach beyond the image read zeros there."""
    pad = zero_pad(graph, op, op.operand(0))
    if pad is None:
        return None
    added, rank = integers(pad.attributes, "pads"), op.operand(0).type.rank
    if any((*added[:2], *added[rank : rank + 2])):  # images or channels
        return None
    around = (*added[2:rank], *added[rank + 2 :])
    own = integers(op.attributes, "pads")
    pads = tuple(a + b for a, b in zip(around, own, strict=True))
    operands = [pad.operand(0), *op.inputs[1:]]
    attributes = {**op.attributes, "pads": pads}
    return build(graph, "Conv", operands, attributes, settings=op.settings).output


RULES: Final = (
    LocalRule(
        "pad_windows",
        "default",
        "Makes zeros around an image padding of the convolution that alone reads it.",
        {"Conv": _padded_windows},
        results="equal up to rounding",
    ),
)
