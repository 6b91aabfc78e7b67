"""Ops that change nothing."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.transforms.match import is_exactly
from popc.transforms.rules.rule import LocalRule, Rewrite

__all__ = ["RULES"]


def _same_type(graph: Graph, op: Op) -> Tensor | None:
    """The op is the identity if its type says that nothing changes."""
    del graph
    return op.operand(0) if op.operand(0).type == op.output.type else None


def _whole(graph: Graph, op: Op) -> Tensor | None:
    """A Slice of everything, forwards."""
    del graph
    whole = op.operand(0).type == op.output.type
    return (
        op.operand(0)
        if whole and all(step == 1 for step in integers(op.attributes, "steps"))
        else None
    )


def _unpadded(graph: Graph, op: Op) -> Tensor | None:
    del graph
    return None if any(integers(op.attributes, "pads")) else op.operand(0)


def _only_operand(graph: Graph, op: Op) -> Tensor | None:
    del graph
    return op.operand(0) if len(op.inputs) == 1 else None


def _without_empty(graph: Graph, op: Op) -> Tensor | None:
    """Operands of a Concat that have no elements do not count."""
    full = [tensor for tensor in op.present_inputs if tensor.type.size]
    if len(full) == len(op.inputs) or not full:
        return None
    if len(full) == 1:
        return full[0]
    return build(graph, "Concat", full, dict(op.attributes), settings=op.settings).output


def _neutral(value: float, sides: tuple[int, ...]) -> Rewrite:
    """A binary op with its neutral element on one of ``sides``."""

    def rewrite(graph: Graph, op: Op) -> Tensor | None:
        del graph
        for side in sides:
            if not is_exactly(op.operand(side), value):
                continue
            other = op.operand(1 - side)
            if other.type == op.output.type:
                return other
        return None

    return rewrite


_IDENTITIES: Final[dict[str, Rewrite]] = {
    **dict.fromkeys(("Cast", "Copy", "Expand", "Reshape", "Tile"), _same_type),
    **dict.fromkeys(("Concat", "Sum"), _only_operand),
    "Pad": _unpadded,
    "Slice": _whole,
}

RULES: Final = (
    LocalRule(
        "drop_identities",
        "minimal",
        "Removes ops that give their operand back: Cast, Copy, Expand, Reshape, Slice and Tile to "
        "the type that is there, Pad by nothing, Concat and Sum of one.",
        _IDENTITIES,
    ),
    LocalRule(
        "drop_detach",
        "minimal",
        "Removes Detach, which matters to gradients only, when the backward pass is there.",
        {"Detach": _same_type},
        after_gradients=True,
    ),
    LocalRule(
        "drop_neutral_elements",
        "default",
        "Removes x + 0, x - 0, x * 1 and x / 1.",
        {
            "Add": _neutral(0, (0, 1)),
            "Div": _neutral(1, (1,)),
            "Mul": _neutral(1, (0, 1)),
            "Sub": _neutral(0, (1,)),
        },
        results="equal, but -0 + 0 stays -0",
    ),
    LocalRule(
        "drop_empty_operands",
        "minimal",
        "Removes operands without elements from a Concat.",
        {"Concat": _without_empty},
    ),
)
