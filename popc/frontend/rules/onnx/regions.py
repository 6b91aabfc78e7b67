"""Pooling of regions of interest, and the selection of boxes.

How many boxes NonMaxSuppression selects depends on their values, so those must be known.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]

_WHAT: Final = "the number of selected boxes"


def _non_max_suppression(node: Node) -> Tensor:
    """Selected [boxes, 3]: batch, class and box index; the best first in each class."""
    boxes, scores = node.input(0).type, node.input(1).type
    _check(boxes.shape, scores.shape)
    limit = int(_scalar(node, 2, 0))
    if limit <= 0 or boxes.size == 0 or scores.size == 0:
        return node.constant(np.zeros((0, 3)), DType.INT64)
    overlap = np.float32(_scalar(node, 3, 0.0))
    threshold = _scalar(node, 4, -np.inf)
    corners = _corners(
        node.require_known(0, _WHAT), centred=bool(node.integer("center_point_box", 0))
    )
    selected = [
        (batch, number, box)
        for batch, classes in enumerate(node.require_known(1, _WHAT))
        for number, values in enumerate(classes)
        for box in _select(corners[batch], values, limit, overlap, threshold)
    ]
    return node.constant(np.reshape(selected, (-1, 3)), DType.INT64)


def _check(boxes: tuple[int, ...], scores: tuple[int, ...]) -> None:
    if len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4:
        raise ModelError(
            f"boxes {list(boxes)} and scores {list(scores)} must be [N, B, 4], [N, C, B]"
        )
    if (boxes[0], boxes[1]) != (scores[0], scores[2]):
        raise ModelError(f"boxes {list(boxes)} and scores {list(scores)} do not belong together")


def _scalar(node: Node, index: int, default: float) -> float:
    if node.optional(index) is None:
        return default
    value = node.require_known(index, _WHAT)
    return float(value.reshape(-1)[0]) if value.size else default


def _corners(boxes: Array, *, centred: bool) -> Array:
    """Boxes as lower corner, upper corner: [N, B, 2, 2]."""
    pairs = boxes.reshape(*boxes.shape[:2], 2, 2).astype(np.float32)
    first: Array = pairs[:, :, 0]
    second: Array = pairs[:, :, 1]
    if centred:
        first, second = first - second / 2, first + second / 2
    return np.stack([np.minimum(first, second), np.maximum(first, second)], axis=2)


def _select(
    boxes: Array, scores: Array, limit: int, overlap: np.float32, threshold: float
) -> list[int]:
    """Box numbers by falling score (of equals, the first), skipping what overlaps a chosen one."""
    order = np.argsort(-scores, kind="stable")
    waiting = order[scores[order] > threshold] if threshold > -np.inf else order
    chosen: list[int] = []
    while len(waiting) and len(chosen) < limit:
        best = int(waiting[0])
        chosen.append(best)
        waiting = waiting[1:]
        waiting = waiting[_intersection_over_union(boxes[best], boxes[waiting]) <= overlap]
    return chosen


def _intersection_over_union(box: Array, others: Array) -> Array:
    """The overlap of one box [2, 2] with others [B, 2, 2]; zero where an area is."""
    low = np.maximum(box[0], others[:, 0])
    high = np.minimum(box[1], others[:, 1])
    shared = np.prod(np.clip(high - low, 0, None), axis=1)
    union = np.prod(box[1] - box[0]) + np.prod(others[:, 1] - others[:, 0], axis=1) - shared
    ratio: Array = np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)
    return ratio


def _roi_align(node: Node) -> Tensor:
    """Before opset 16 there was one transformation, without the half-pixel shift."""
    return node.emit(
        "RoiAlign",
        [node.input(0), node.input(1), node.input(2)],
        {
            "mode": node.text("mode"),
            "coordinate_transformation_mode": node.text(
                "coordinate_transformation_mode", "output_half_pixel"
            ),
            "output_height": node.integer("output_height"),
            "output_width": node.integer("output_width"),
            "sampling_ratio": node.integer("sampling_ratio"),
            "spatial_scale": node.number("spatial_scale"),
        },
    )


def _max_roi_pool(node: Node) -> Tensor:
    return node.emit(
        "MaxRoiPool",
        [node.input(0), node.input(1)],
        {
            "pooled_shape": node.integers("pooled_shape"),
            "spatial_scale": node.number("spatial_scale"),
        },
    )


RULES: Final = default_domain(
    {
        "MaxRoiPool": _max_roi_pool,
        "NonMaxSuppression": _non_max_suppression,
        "RoiAlign": _roi_align,
    }
)
