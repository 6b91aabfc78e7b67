"""ai.graphcore, counts, ranks and bins; random masks; splines."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.graphcore.operators import constant_like, graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import broadcast_shapes, normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


def _bucketize(node: Node) -> Tensor:
    right = node.integer("right", 0)
    if right not in (0, 1):
        raise ModelError(f"right must be 0 or 1, not {right}")
    return node.emit("Bucketize", [node.input(0), node.input(1)], {"right": right})


def _histogram(node: Node) -> Tensor:
    """Count the elements in each bin; levels are an attribute, in any order, or input 1."""
    return _counted(node, node.input(0), node.optional(1))


def _counted(node: Node, x: Tensor, levels: Tensor | None) -> Tensor:
    if levels is None:
        levels = node.constant(np.sort(np.array(node.numbers("levels"))), x.type.dtype)
    absolute = int(bool(node.integer("absoluteOfInput", 0)))
    return node.emit("BinCount", [x, levels], {"absolute": absolute})


def _histogram_update(node: Node) -> Tensor:
    """Inputs: counts so far, elements, levels."""
    counts = node.input(0)
    more = _counted(node, node.input(1), node.optional(2))
    return node.emit("Add", [counts, converted(node, more, counts.type.dtype)])


def _fixed_width_bins(node: Node) -> Tensor:
    """``n_bins`` levels from the least to the greatest element, evenly spaced."""
    x, count = node.input(0), node.integer("n_bins")
    if count < 1:
        raise ModelError(f"there cannot be {count} bins")
    every: AttributeMap = {"axes": tuple(range(x.type.rank)), "keepdims": 0}
    low, high = node.emit("ReduceMin", [x], every), node.emit("ReduceMax", [x], every)
    places = node.constant(np.linspace(0.0, 1.0, count), x.type.dtype)
    rest = node.constant(np.linspace(1.0, 0.0, count), x.type.dtype)
    return node.emit("Add", [node.emit("Mul", [low, rest]), node.emit("Mul", [high, places])])


def _reduce_median(node: Node) -> list[Tensor]:
    x = node.input(0)
    axes = node.integers("axes") if node.has("axes") else tuple(range(x.type.rank))
    attributes: AttributeMap = {
        "axes": tuple(normal_axis(axis, x.type.rank) for axis in axes),
        "keepdims": node.integer("keepdims", 1),
    }
    return node.emit_all("ReduceMedian", [x], attributes)


def _sort(node: Node) -> list[Tensor]:
    """All elements in order and where they were: the top of as many as there are, hence stable."""
    x = node.input(0)
    axis = normal_axis(node.integer("axis", -1), x.type.rank)
    attributes: AttributeMap = {
        "axis": axis,
        "k": x.type.shape[axis],
        "largest": int(bool(node.integer("descending", 0))),
    }
    values, places = node.emit_all("TopK", [x], attributes)
    return [values, converted(node, places, DType.INT32)]


def _shaped_dropout(node: Node) -> Tensor:
    """Elements that share an element of a mask of ``shape`` are kept or dropped together.

    As in PopART, nothing is dropped unless the model is trained.
    """
    x, ratio = node.input(0), node.number("ratio", 0.5)
    if not 0 <= ratio < 1:
        raise ModelError(f"the ratio must be in [0, 1), not {ratio:g}")
    shape = node.integers("shape", x.type.shape)
    if broadcast_shapes([x.type.shape, shape]) != x.type.shape:
        raise ModelError(f"a mask of shape {list(shape)} does not broadcast to {x.type}")
    if ratio == 0 or not node.importer.context.trains:
        return x
    work = DType.FLOAT64 if x.type.dtype is DType.FLOAT64 else DType.FLOAT32
    draw: AttributeMap = {"shape": shape, "to": work.value, "low": 0.0, "high": 1.0}
    if node.has("seed"):
        draw["seed"] = _seed(node)
    uniform = node.emit("RandomUniform", [], draw)
    kept = node.emit("GreaterOrEqual", [uniform, node.constant(ratio, work)])
    mask = converted(node, kept, x.type.dtype)
    factors = node.emit("Mul", [mask, constant_like(node, 1 / (1 - ratio), x)])
    return node.emit("Mul", [x, factors])


def _seed(node: Node) -> int:
    """A whole number (PopART), or a pair of 32 bits each (TensorFlow), the higher ones first."""
    if isinstance(node.attributes["seed"], int):
        return node.integer("seed")
    pair = node.integers("seed")
    if len(pair) != 2 or not all(-(2**31) <= number < 2**32 for number in pair):
        raise ModelError(f"seed must be a whole number or two of 32 bits, not {list(pair)}")
    high, low = (number % 2**32 for number in pair)
    return (high << 32 | low) - (2**64 if high >= 2**31 else 0)


def _spline_basis(node: Node) -> list[Tensor]:
    operands = [node.input(index) for index in range(3)]
    return node.emit_all("SplineBasis", operands, {"degree": node.integer("degree", 1)})


def _spline_weighting(node: Node) -> Tensor:
    return node.emit("SplineWeighting", node.tensors())


def _normalize_image(node: Node) -> Tensor:
    """(image * scale - offsets) * scales per channel, and a fourth channel of zeros."""
    image = node.input(0)
    *outer, channels = image.type.shape or (0,)
    offsets, scales = (emit_reshape(node, node.input(index), (3,)) for index in (1, 2))
    if channels != 3:
        raise ModelError(f"the last dimension must be 3 channels, not {image.type}")
    given = image.type.dtype
    result = DType.FLOAT16 if given is DType.UINT8 else given
    if not result.is_float:
        raise ModelError(f"an image cannot have element type {given}")
    work = DType.FLOAT64 if given is DType.FLOAT64 else DType.FLOAT32
    x, offsets, scales = (converted(node, operand, work) for operand in (image, offsets, scales))
    scaled = node.emit("Mul", [x, node.constant(node.number("scale", 1.0), work)])
    normal = node.emit("Mul", [node.emit("Sub", [scaled, offsets]), scales])
    ends = (0,) * (2 * len(outer) + 1)
    attributes: AttributeMap = {"pads": (*ends, 1), "mode": "constant", "value": 0.0}
    return node.emit("Pad", [converted(node, normal, result)], attributes)


RULES: Final = graphcore_domain(
    {
        "Bucketize": takes(2, 2, _bucketize),
        "FixedWidthBins": takes(1, 1, _fixed_width_bins),
        "Histogram": takes(1, 2, _histogram),
        "HistogramUpdate": takes(2, 3, _histogram_update),
        "NormalizeImage": takes(3, 3, _normalize_image),
        "ReduceMedian": takes(1, 1, _reduce_median),
        "ShapedDropout": takes(1, 1, _shaped_dropout),
        "Sort": takes(1, 1, _sort),
        "SplineBasis": takes(3, 3, _spline_basis),
        "SplineWeighting": takes(4, 4, _spline_weighting),
    }
)
