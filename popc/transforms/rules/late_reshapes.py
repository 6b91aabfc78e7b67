"""Reshapes between a product and what becomes its epilogue go behind that.

Frameworks whose convolutions of lines are those of images, or whose products have two axes, reshape
results before they add a bias.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, Shape, Tensor
from popc.ops.build import build
from popc.transforms.rules.rule import LocalRule, sole_nearby
from popc_runtime.kernels.core.families import ACTIVATION_NAMES

__all__ = ["RULES"]

_CONVOLUTIONS: Final = ("Conv", "ConvTranspose")
_PRODUCTS: Final = ("Gemm", "MatMul")
_BINARY: Final = ("Add", "Div", "Mul", "Sub")
_MOST_STEPS: Final = 4  # between the product and the Reshape


def _function_first(graph: Graph, op: Op) -> Tensor | None:
    reshape = _of_product(graph, op, op.operand(0)) if len(op.present_inputs) == 1 else None
    if reshape is None:
        return None
    return _swapped(graph, op, reshape, [reshape.operand(0)])


def _constant_first(graph: Graph, op: Op) -> Tensor | None:
    for side in (0, 1):
        constant, reshape = op.operand(1 - side), _of_product(graph, op, op.operand(side))
        if reshape is None or not constant.is_constant or op.output.type != reshape.output.type:
            continue
        shape = _shape_before(constant.type.shape, reshape)
        if shape is None:
            continue
        moved = build(graph, "Reshape", [constant], {"shape": shape}, settings=op.settings).output
        operands = [reshape.operand(0), moved]
        return _swapped(graph, op, reshape, operands if side == 0 else operands[::-1])
    return None


def _of_product(graph: Graph, op: Op, tensor: Tensor) -> Op | None:
    """The Reshape that makes ``tensor`` of a product's results, if nothing else reads either."""
    reshape = sole_nearby(graph, op, tensor, "Reshape")
    if reshape is None:
        return None
    before, after = reshape.operand(0).type.shape, reshape.output.type.shape
    maker = reshape.operand(0)
    for _ in range(_MOST_STEPS):
        if sole_nearby(graph, op, maker, *_CONVOLUTIONS) is not None:
            return reshape if _sizes(before) == _sizes(after) else None
        product = sole_nearby(graph, op, maker, *_PRODUCTS)
        if product is not None:
            known = product.operand(1).is_constant
            return reshape if known and before[-1:] == after[-1:] else None
        step = sole_nearby(graph, op, maker, *ACTIVATION_NAMES, *_BINARY)
        if step is None:
            return None
        maker = step.operand(1 if step.operand(0).is_constant else 0)
    return None


def _sizes(shape: Shape) -> list[int]:
    return [size for size in shape if size != 1]


def _shape_before(constant: Shape, reshape: Op) -> Shape | None:
    """The shape of a constant, which broadcasts to the result of ``reshape``, for its operand."""
    before, after = reshape.operand(0).type.shape, reshape.output.type.shape
    sizes = (1,) * (len(after) - len(constant)) + constant
    if _sizes(before) == _sizes(after):
        left = iter([size for size, whole in zip(sizes, after, strict=True) if whole != 1])
        return tuple(1 if size == 1 else next(left) for size in before)
    if before[-1:] == after[-1:] and all(size == 1 for size in sizes[:-1]):
        return sizes[-1:]
    return None


def _swapped(graph: Graph, op: Op, reshape: Op, operands: list[Tensor]) -> Tensor:
    new = build(graph, op.op_type, operands, {**op.attributes}, settings=op.settings).output
    shape = reshape.output.type.shape
    return build(graph, "Reshape", [new], {"shape": shape}, settings=reshape.settings).output


RULES: Final = (
    LocalRule(
        "late_reshapes",
        "default",
        "Adds a constant to a product, scales it or applies an activation before a Reshape, not "
        "behind it, where that keeps the last axis, or of convolutions all axes that are not of "
        "size 1.",
        {
            **dict.fromkeys(_BINARY, _constant_first),
            **dict.fromkeys(sorted(ACTIVATION_NAMES), _function_first),
        },
    ),
)
