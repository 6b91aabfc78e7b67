"""Pooling of regions of interest, and the selection of boxes.

How many boxes NonMaxSuppression selects depends on their values; if they are not known, see
`popc.frontend.rules.sized`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.kernels.parts.boxes import corners, selected_boxes

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
    found = corners(node.require_known(0, _WHAT), centred=bool(node.integer("center_point_box", 0)))
    values = node.require_known(1, _WHAT)
    return node.constant(selected_boxes(found, values, limit, overlap, threshold), DType.INT64)


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
