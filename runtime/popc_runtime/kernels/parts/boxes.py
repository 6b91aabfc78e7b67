"""Selection of boxes by score, without those that overlap a better one."""

from __future__ import annotations

import numpy as np

from popc_runtime.format.dtypes import Array

__all__ = ["corners", "selected_boxes"]


def corners(boxes: Array, *, centred: bool) -> Array:
    """Boxes [N, B, 4] as lower corner, upper corner: [N, B, 2, 2].

    ``centred``: they are given by centre and size instead of two corners.
    """
    pairs = np.asarray(boxes, np.float32).reshape(*boxes.shape[:2], 2, 2)
    first: Array = pairs[:, :, 0]
    second: Array = pairs[:, :, 1]
    if centred:
        half = second / 2
        first, second = first - half, first + half
    return np.stack([np.minimum(first, second), np.maximum(first, second)], axis=2)


def selected_boxes(
    boxes: Array, scores: Array, limit: int, overlap: np.float32, threshold: float
) -> Array:
    """ONNX NonMaxSuppression-11: rows of batch, class and box; the best first in each class.

    Args:
        boxes: Their corners [N, B, 2, 2].
        scores: [N, C, B].
        limit: The most that are selected of a class of a batch.
        overlap: A box that overlaps a selected one by more (intersection over union) is left out.
        threshold: Boxes must have a higher score, unless it is -inf.
    """
    rows = [
        (batch, number, box)
        for batch, classes in enumerate(scores)
        for number, values in enumerate(classes)
        for box in _select(boxes[batch], values, limit, overlap, threshold)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


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
