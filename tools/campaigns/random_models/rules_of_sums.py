"""Error bounds of sums, and of what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np
import onnx

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import run_node
from tools.campaigns.random_models.rules import FLOAT32, Rule, Step, of_sum, unit
from tools.campaigns.random_models.rules_of_moves import moved, refused_if_uncertain

__all__ = [
    "anywhere",
    "averaged",
    "dynamically_quantized",
    "length",
    "products",
    "requantized",
    "resized",
    "sum_of_squares",
    "terms_of_conv",
    "terms_of_gemm",
    "terms_of_matmul",
    "terms_of_transposed",
]

_WINOGRAD: Final = 1e-5  # of the largest sum: docs/options.md says half of it of one result


def products(terms: Callable[[Step], float], products: int = 2) -> Rule:
    """Sums of products of the first operands, to which later ones are added."""

    def rule(step: Step) -> list[Array]:
        given = [x for x in step.operands if x is not None]
        sizes = [np.abs(x.array.astype(np.float64)) for x in given]
        if step.operands[0] is not None and step.operands[0].array.dtype.kind != "f":
            return refused_if_uncertain(step)
        total = step.through(*sizes)
        reached = total
        if any(x.error.any() for x in given):
            spread = [size + x.error for size, x in zip(sizes, given, strict=True)]
            reached = step.through(*spread)
        error = np.maximum(reached - total, 0) + of_sum(terms(step) + products) * total
        if step.node.op_type == "Conv" and list(step.operand(1).shape[2:]) == [3, 3]:
            error = error + _WINOGRAD * total.max(initial=0)
        if not step.operand(1).error.any():  # what follows may be folded into the weights
            error = error + unit(step.operand(1).array.dtype) * total
        return [error + step.rounding()]

    return rule


def terms_of_conv(step: Step) -> float:
    """The number of products in an element of a convolution."""
    return float(prod(step.operand(1).shape[1:]))


def terms_of_transposed(step: Step) -> float:
    """The most products that make an element of a transposed convolution."""
    weights = step.operand(1).shape
    return float(weights[0] * prod(weights[2:]))


def terms_of_matmul(step: Step) -> float:
    """The number of products in an element of a product."""
    return float(step.operand(0).shape[-1])


def terms_of_gemm(step: Step) -> float:
    """The most products that make an element of a Gemm."""
    return float(max(step.operand(0).shape))


def averaged(step: Step) -> list[Array]:
    """Means, sums and interpolations: weights are not negative."""
    x = step.operand(0)
    count = x.array.size / max(step.y.size, 1)
    if step.node.op_type in {"AveragePool", "Resize", "CumSum", "LpPool"}:
        count = 64.0
    total = step.through(np.abs(x.array.astype(np.float64)))
    if not x.is_float:
        return refused_if_uncertain(step)
    of_parts = unit(x.array.dtype) if step.node.op_type.startswith("Reduce") else 0.0
    error = step.through(x.error) + (of_sum(count) + of_parts) * total
    return [error + step.rounding()]  # parts of a batch may be summed by themselves


def resized(step: Step) -> list[Array]:
    """Resize: nearest moves, linear averages, cubic has weights of both signs."""
    mode = step.attribute("mode", b"nearest")
    x = step.operand(0)
    if mode == b"nearest":
        return moved(step)
    if mode == b"linear" and step.attribute("coordinate_transformation_mode", b"") != (
        b"tf_crop_and_resize"
    ):
        weights = 1.0
    else:
        weights = 2.0 ** len(x.shape)  # magnitudes of the weights of an axis: 1.5 or less
    size = float(np.abs(x.array.astype(np.float64)).max(initial=0))
    error = weights * (float(x.error.max(initial=0)) + of_sum(64.0) * size)  # places too
    return [error + step.rounding()]


def sum_of_squares(step: Step) -> list[Array]:
    """ReduceSumSquare."""
    x = step.operand(0)
    size = np.abs(x.array.astype(np.float64))
    total = step.y
    reached = step.through(size + x.error)
    return [np.maximum(reached - total, 0) + of_sum(float(x.array.size)) * total + step.rounding()]


def anywhere(step: Step) -> list[Array]:
    """The largest error of all."""
    return [np.full(step.y.shape, step.operand(0).error.max(initial=0))]


def length(step: Step) -> list[Array]:
    """Lengths and sums of magnitudes."""
    x = step.operand(0)
    return [step.through(x.error) + of_sum(float(x.array.size)) * step.y + step.rounding()]


def requantized(step: Step) -> list[Array]:
    """QLinearConv and QLinearMatMul of exact operands: either of two where a sum is at a tie."""
    y = step.results[0]
    assert y is not None
    if any(x is not None and x.error.any() for x in step.operands):
        return refused_if_uncertain(step)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale = (step.operand(i) for i in range(7))
    name = {"QLinearConv": "ConvInteger", "QLinearMatMul": "MatMulInteger"}[step.node.op_type]
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    node.op_type = name
    operands = [x.array, w.array, x_zero.array, w_zero.array]
    sums = next(iter(run_node(node, operands, step.opset).values())).astype(np.float64)
    bias = step.operand(8).array if step.has(8) else np.zeros(())
    factor = np.float64(x_scale.array) * w_scale.array / y_scale.array
    shape = (-1, 1, 1) if name == "ConvInteger" else (-1,)
    steps = (sums + bias.reshape(shape)) * np.reshape(factor, shape)
    to_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    return [(to_tie <= 8 * FLOAT32 * (1 + np.abs(steps))).astype(np.float64)]


def dynamically_quantized(step: Step) -> list[Array]:
    """Numbers that lie at ties may go either way; so may those that are not exact."""
    x = step.operand(0)
    scale, zero = (made for made in step.results[1:] if made is not None)
    reach = float(x.error.max(initial=0))
    of_scale = 2 * reach / 255 + 4 * FLOAT32 * float(scale)
    steps = x.array.astype(np.float64) / float(scale)
    apart = 2 * (x.error + reach) / float(scale) + 8 * FLOAT32 * (1 + np.abs(steps))
    to_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    edge = -float(x.array.min(initial=0)) / float(scale)
    shifts = abs(abs(edge - np.floor(edge)) - 0.5) <= apart.max(initial=0)
    may = (to_tie <= apart).astype(np.float64) * np.ceil(apart)
    return [may + float(shifts), np.array(of_scale), np.full(zero.shape, float(shifts))]
