"""CropAndResize of com.microsoft (and of TensorFlow), in terms of GridSample."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.microsoft.operators import microsoft_domain, plus, times
from popc.frontend.rules.moves import emit_reshape
from popc.ir import Tensor

__all__ = ["RULES"]


def _crop_and_resize(node: Node) -> Tensor:
    """Boxes [n, (y1, x1, y2, x2)], relative to the image, sampled at ``crop_size`` points.

    Corners are aligned; "nearest" rounds half up; points outside the image have the extrapolation
    value.
    """
    images = node.emit("Gather", [node.input(0), node.input(2)], {"axis": 0})
    known = node.require_known(3, "the size of the crops").reshape(-1)
    crop = (int(known[0]), int(known[1]))
    (x, x_inside), (y, y_inside) = (_axis(node, axis, images, crop) for axis in (1, 0))
    points = node.emit("Concat", [x, y], {"axis": 3})
    sampled = standard_op(
        node, "GridSample", [images, points], {"align_corners": 1, "padding_mode": "border"}
    )
    inside = node.emit("And", [x_inside, y_inside])
    outside = node.constant(node.number("extrapolation_value", 0.0), sampled.type.dtype)
    return node.emit("Where", [inside, sampled, outside])


def _axis(node: Node, axis: int, images: Tensor, crop: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Coordinates [n, *crop, 1] from -1 to 1 along y (0) or x (1), and whether they are inside.

    The latter broadcasts to [n, C, *crop].
    """
    count, size = images.type.shape[0], images.type.shape[2 + axis]
    positions = _positions(node, axis, size, crop[axis])
    shape = (count, 1, 1, crop[1]) if axis else (count, 1, crop[0], 1)
    positions = emit_reshape(node, positions, shape)
    dtype = positions.type.dtype
    limits = [node.constant(limit, dtype) for limit in (0.0, float(size - 1))]
    inside = node.emit(
        "And",
        [
            node.emit("GreaterOrEqual", [positions, limits[0]]),
            node.emit("LessOrEqual", [positions, limits[1]]),
        ],
    )
    scaled = times(node, positions, 2.0 / max(size - 1, 1))
    coordinates = plus(node, scaled, node.constant(-1.0, dtype))
    whole = node.emit("Expand", [coordinates], {"shape": (count, 1, *crop)})
    return emit_reshape(node, whole, (count, *crop, 1)), inside


def _positions(node: Node, axis: int, size: int, count: int) -> Tensor:
    """[n, count]: where along an axis of ``size`` elements the points of each box lie."""
    boxes = node.input(1)
    corners = node.emit("Gather", [boxes, node.constant([axis, axis + 2])], {"axis": 1})
    share = np.linspace(0, 1, count) if count > 1 else np.array([0.5])
    weights = node.constant(np.stack([1 - share, share]) * (size - 1), boxes.type.dtype)
    positions = node.emit("MatMul", [corners, weights])
    if node.text("mode", "bilinear") == "nearest":
        half = node.constant(0.5, boxes.type.dtype)
        positions = node.emit("Floor", [plus(node, positions, half)])
    return positions


RULES: Final = microsoft_domain({"CropAndResize": _crop_and_resize})
