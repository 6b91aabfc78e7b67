"""Operators that early versions of ONNX had on trial, and onnxruntime still runs.

Their schemas are not part of onnx, so defaults of attributes are given here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain, standard_op
from popc.frontend.rules.moves import emit_slice
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _line(node: Node, x: Tensor, factor: float, term: float) -> Tensor:
    scaled = node.emit("Mul", [x, node.constant(factor, x.type.dtype)])
    return node.emit("Add", [scaled, node.constant(term, x.type.dtype)])


def _affine(node: Node) -> Tensor:
    return _line(node, node.input(0), node.number("alpha", 1.0), node.number("beta", 0.0))


def _scale(node: Node) -> Tensor:
    x = node.input(0)
    return node.emit("Mul", [x, node.constant(node.number("scale", 1.0), x.type.dtype)])


def _scaled_tanh(node: Node) -> Tensor:
    """``alpha * tanh(beta * x)``."""
    x = node.input(0)
    alpha, beta = node.number("alpha", 0.0), node.number("beta", 0.0)
    inner = node.emit("Mul", [x, node.constant(beta, x.type.dtype)])
    return node.emit("Mul", [node.emit("Tanh", [inner]), node.constant(alpha, x.type.dtype)])


def _parametric_softplus(node: Node) -> Tensor:
    """``alpha * log(1 + exp(beta * x))``."""
    x = node.input(0)
    alpha, beta = node.number("alpha", 0.0), node.number("beta", 0.0)
    inner = node.emit("Mul", [x, node.constant(beta, x.type.dtype)])
    return node.emit("Mul", [node.emit("Softplus", [inner]), node.constant(alpha, x.type.dtype)])


def _image_scaler(node: Node) -> Tensor:
    """``scale * x + bias``, a bias for each channel of [N, C, H, W]."""
    x, biases = _image(node), node.numbers("bias", ())
    if len(biases) != x.type.shape[1]:
        raise ModelError(f"there are {len(biases)} biases for {x.type.shape[1]} channels")
    scaled = node.emit("Mul", [x, node.constant(node.number("scale", 1.0), x.type.dtype)])
    column = np.array(biases).reshape(-1, 1, 1)
    return node.emit("Add", [scaled, node.constant(column, x.type.dtype)])


def _crop(node: Node) -> Tensor:
    """``border`` is left out (left, top, right, bottom), or ``scale`` is kept behind it."""
    x, border, kept = _image(node), node.integers("border"), node.integers("scale", ())
    height, width = x.type.shape[2:]
    if len(border) != 4 or len(kept) not in (0, 2):
        raise ModelError(f"border has {len(border)} numbers, and scale {len(kept)}, not 4 and 2")
    left, top, right, bottom = border
    ends = (top + kept[0], left + kept[1]) if kept else (height - bottom, width - right)
    if min(border) < 0 or not (top < ends[0] <= height and left < ends[1] <= width):
        raise ModelError(f"border {list(border)} leaves nothing of {height} by {width}")
    windows = [range(dim) for dim in x.type.shape[:2]]
    return emit_slice(node, x, [*windows, range(top, ends[0]), range(left, ends[1])])


def _image(node: Node) -> Tensor:
    x = node.input(0)
    if x.type.rank != 4:
        raise ModelError(f"needs [batch, channels, height, width], not {x.type}")
    return x


def _dynamic_slice(node: Node) -> Tensor:
    """Starts, ends and axes are operands, as of every Slice since opset 10."""
    return standard_op(node, "Slice", [node.optional(index) for index in range(len(node.inputs))])


RULES: Final = default_domain(
    {
        "Affine": _affine,
        "Crop": _crop,
        "DynamicSlice": _dynamic_slice,
        "ImageScaler": _image_scaler,
        "ParametricSoftplus": _parametric_softplus,
        "Scale": _scale,
        "ScaledTanh": _scaled_tanh,
    }
)
