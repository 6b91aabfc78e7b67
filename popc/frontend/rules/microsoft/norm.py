"""Normalisations of com.microsoft, fused with the sums in front of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import ONNX, standard_op, standard_ops
from popc.frontend.rules.microsoft.operators import (
    channels_first,
    channels_last,
    microsoft_domain,
    plus,
)
from popc.frontend.rules.moves import emit_reshape
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = ["RULES", "embedded"]

_EPSILON: Final = 1e-12  # of the Skip and Embed operators; the plain ones have 1e-5


def _skip_layer_normalization(node: Node) -> list[Value | None]:
    """LayerNormalization of input + skip + bias; the sum is an output too."""
    total = plus(node, node.input(0), node.input(1), node.optional(4))
    operands = [total, node.input(2), node.optional(3)]
    attributes = {"epsilon": node.number("epsilon", _EPSILON)}
    y, mean, inverse = standard_ops(node, "LayerNormalization", operands, attributes, outputs=3)
    return [y, mean, inverse, total]


def _skip_simplified(node: Node) -> list[Value | None]:
    """RMSNormalization of input + skip + bias; the mean that is returned is zero."""
    total = plus(node, node.input(0), node.input(1), node.optional(3))
    epsilon = node.number("epsilon", _EPSILON)
    y = standard_op(node, "RMSNormalization", [total, node.input(2)], {"epsilon": epsilon})
    inverse = _inverse_rms(node, total, -1, epsilon) if node.wants_output(2) else None
    mean = None
    if node.wants_output(1):
        shape = (*total.type.shape[:-1], 1)
        node.require_room(prod(shape))
        mean = node.constant(np.zeros(shape), DType.FLOAT32)
    return [y, mean, inverse, total]


def _simplified(node: Node) -> list[Value | None]:
    """RMSNormalization, and 1 / RMS of each row."""
    attributes = {"axis": node.integer("axis", -1), "epsilon": node.number("epsilon", 1e-5)}
    x = node.input(0)
    y = standard_op(node, "RMSNormalization", [x, node.input(1)], attributes)
    if not node.wants_output(1):
        return [y]
    return [y, _inverse_rms(node, x, node.integer("axis", -1), attributes["epsilon"])]


def _inverse_rms(node: Node, x: Tensor, axis: int, epsilon: float) -> Tensor:
    if x.type.dtype is not DType.FLOAT64:
        x = standard_op(node, "Cast", [x], {"to": 1})
    axes = tuple(range(axis % x.type.rank, x.type.rank))
    squares = node.emit("Mul", [x, x])
    mean = node.emit("ReduceMean", [squares], {"axes": axes, "keepdims": 1})
    root = node.emit("Sqrt", [plus(node, mean, node.constant(epsilon, x.type.dtype))])
    return node.emit("Reciprocal", [root])


def _embed_layer_normalization(node: Node) -> list[Value | None]:
    def rows(table: int, index: Tensor) -> Tensor:
        return node.emit("Gather", [node.input(table), index], {"axis": 0})

    return embedded(node, rows, node.input(5), node.input(6), node.optional(8))


def embedded(
    node: Node,
    rows: Callable[[int, Tensor], Tensor],
    gamma: Tensor,
    beta: Tensor,
    positions: Tensor | None,
) -> list[Value | None]:
    """Word, position and segment embeddings, added and normalised.

    Operand 0 holds the words, 1 the segments; ``rows`` gives the rows of an index tensor from the
    tables in operands 2 (words), 3 (positions) and 4 (segments).  Results are the normalised sum,
    `_mask_index` and the sum.
    """
    ids, segments = node.input(0), node.optional(1)
    places = node.constant(node.positions(ids.type.shape[1])) if positions is None else positions
    kinds = None if segments is None else rows(4, segments)
    total = plus(node, rows(2, ids), rows(3, places), kinds)
    attributes = {"epsilon": node.number("epsilon", _EPSILON)}
    y = standard_op(node, "LayerNormalization", [total, gamma, beta], attributes)
    return [y, _mask_index(node, ids) if node.wants_output(1) else None, total]


def _mask_index(node: Node, ids: Tensor) -> Tensor:
    """int32 [batch]: how many elements of each row of the mask are set; 0 without a mask."""
    mask = node.optional(7)
    if mask is None:
        return node.constant([0] * ids.type.shape[0], DType.INT32)
    return node.emit("ReduceSum", [mask], {"axes": (1,), "keepdims": 0})


def _group_norm(node: Node) -> list[Value | None]:
    """GroupNormalization of [N, H, W, C] (or [N, C, H, W]), then SiLU if asked for.

    SkipGroupNorm normalises X + skip + bias, and returns the sum too.
    """
    x = node.input(0)
    total = plus(node, x, _as_image(node, node.optional(3), x), node.optional(4))
    last = node.integer("channels_last", 1) != 0
    image = channels_first(node, total) if last else total
    gamma, beta = (_in_dtype(node, node.input(index), x.type.dtype) for index in (1, 2))
    attributes = {"num_groups": node.integer("groups"), "epsilon": node.number("epsilon", 1e-5)}
    y = standard_op(node, "GroupNormalization", [image, gamma, beta], attributes)
    if node.integer("activation", 0):
        y = node.emit("Mul", [y, node.emit("Sigmoid", [y])])
    return [channels_last(node, y) if last else y, total]


def _as_image(node: Node, skip: Tensor | None, x: Tensor) -> Tensor | None:
    """``skip`` may be [N, C] for [N, H, W, C]."""
    if skip is None or skip.type.rank == x.type.rank:
        return skip
    batch, channels = skip.type.shape
    return emit_reshape(node, skip, (batch, *(1,) * (x.type.rank - 2), channels))


def _in_dtype(node: Node, x: Tensor, dtype: DType) -> Tensor:
    return x if x.type.dtype is dtype else node.emit("Cast", [x], {"to": dtype.value})


RULES: Final = {
    # onnxruntime registers this one in the default domain
    (ONNX, "SimplifiedLayerNormalization"): _simplified,
    **microsoft_domain(
        {
            "EmbedLayerNormalization": _embed_layer_normalization,
            "GroupNorm": _group_norm,
            "SkipGroupNorm": _group_norm,
            "SkipLayerNormalization": _skip_layer_normalization,
            "SkipSimplifiedLayerNormalization": _skip_simplified,
        }
    ),
}
