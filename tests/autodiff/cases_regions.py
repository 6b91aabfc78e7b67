"""Gradient cases of the pooling of regions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.autodiff.inputs import distinct, int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

# x1, y1, x2, y2: inside, small, over the edges, far larger than the map, empty.
_ROIS: Final = np.array(
    [[1, 1, 7, 6], [2, 3, 3, 4], [-3, 2, 6, 12], [-50, -50, 70, 90], [5, 5, 5, 5.0]]
)
_BATCHES: Final = int64(0, 1, 1, 0, 1)
_MAPS: Final = (2, 3, 8, 9)


def _align(name: str, **attributes: Any) -> Case:
    sizes = {"output_height": 3, "output_width": 2, "spatial_scale": 1.0}
    is_max = attributes.get("mode") == "max"
    x = distinct(*_MAPS) if is_max else numbers(*_MAPS)
    return Case("RoiAlign", [x, _ROIS, _BATCHES], {**sizes, **attributes}, name=name, frozen=(1,))


def _pooled(x: Any, _: Any) -> Any:
    """Two regions that divide evenly into bins of whole elements."""
    functional = pytorch().nn.functional
    parts = [functional.adaptive_max_pool2d(p, 2) for p in (x[1, :, 2:6, 1:7], x[0, :, :8, 3:5])]
    return pytorch().stack(parts)


CASES: Final[list[Case]] = [
    _align("average"),
    _align("samples", sampling_ratio=2),
    _align("shifted", coordinate_transformation_mode="output_half_pixel"),
    _align("scaled", spatial_scale=0.5, sampling_ratio=3),
    _align("maximum", mode="max"),
    _align("maximum of samples", mode="max", sampling_ratio=2),
    Case(
        "RoiAlign",
        [numbers(*_MAPS), np.zeros((0, 4)), np.zeros(0, np.int64)],
        name="none",
    ),
    Case(
        "MaxRoiPool",
        [distinct(*_MAPS), np.array([[1, 1, 2, 6, 5], [0, 3, 0, 4, 7.0]])],
        {"pooled_shape": [2, 2]},
        name="even",
        frozen=(1,),
        torch=_pooled,
    ),
    Case(
        "MaxRoiPool",
        [distinct(*_MAPS), np.column_stack([_BATCHES, 2 * _ROIS])],
        {"pooled_shape": [3, 2], "spatial_scale": 0.5},
        name="edges",
        frozen=(1,),
    ),
    Case(
        "MaxRoiPool",
        [np.zeros(_MAPS), np.array([[1, 1, 2, 6, 5], [0, 3, 0, 4, 7.0]])],
        {"pooled_shape": [2, 2]},
        name="ties",
        frozen=(1,),
        smooth=False,
        torch=_pooled,
    ),
]
