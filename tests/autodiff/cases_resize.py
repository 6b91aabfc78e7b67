"""Gradient cases of Resize and Upsample."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]


def _interpolate(mode: str, **options: Any) -> Any:
    def function(x: Any, _roi: Any, _scales: Any, sizes: Any) -> Any:
        size = tuple(sizes[2:].tolist())
        return pytorch().nn.functional.interpolate(x, size, mode=mode, **options)

    return function


def _image(name: str, height: int, width: int, torch: Any = None, **attributes: Any) -> Case:
    operands = [numbers(2, 3, 4, 6), None, None, int64(2, 3, height, width)]
    return Case(
        "Resize", operands, attributes, name=f"{attributes.get('mode', 'nearest')} {name}",
        constants=(3,), torch=torch,
    )  # fmt: skip


def _scaled(name: str, shape: tuple[int, ...], *scales: float, **attributes: Any) -> Case:
    operands = [numbers(*shape), None, np.array(scales, np.float32)]
    return Case("Resize", operands, attributes, name=name, constants=(2,))


_CORNERS: Final = {"coordinate_transformation_mode": "align_corners"}
_FLOOR: Final = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_BILINEAR: Final = _interpolate("bilinear")
_BICUBIC: Final = _interpolate("bicubic")

_REGION: Final = np.array([0, 0, 0.2, -0.3, 1, 1, 1.4, 0.8], np.float32)

CASES: Final[list[Case]] = [
    _image("double", 8, 12, _interpolate("nearest"), **_FLOOR),
    _image("halve", 2, 3, _interpolate("nearest"), **_FLOOR),
    _image("uneven", 7, 8, _interpolate("nearest"), **_FLOOR),
    _image("half pixel", 6, 4, _interpolate("nearest-exact"), nearest_mode="round_prefer_ceil"),
    _image("double", 8, 12, _BILINEAR, mode="linear"),
    _image("halve", 2, 3, _BILINEAR, mode="linear"),
    _image(
        "corners", 7, 11, _interpolate("bilinear", align_corners=True), mode="linear", **_CORNERS
    ),
    _image("grow and shrink", 8, 3, _BILINEAR, mode="linear"),
    _image("antialias", 2, 3, mode="linear", antialias=1),
    _image(
        "antialias inside",
        2,
        3,
        _interpolate("bilinear", antialias=True),
        mode="linear",
        antialias=1,
        exclude_outside=1,
    ),
    _image("double", 8, 12, _BICUBIC, mode="cubic"),
    _image("halve", 2, 3, _BICUBIC, mode="cubic"),
    _image("antialias", 2, 4, mode="cubic", antialias=1, cubic_coeff_a=-0.5),
    _image("exclude outside", 7, 8, mode="cubic", exclude_outside=1),
    _image("symmetric", 7, 8, mode="linear", coordinate_transformation_mode="half_pixel_symmetric"),
    _scaled("fractions", (1, 1, 5, 7), 1, 1, 1.7, 0.6, mode="linear"),
    _scaled("channels", (2, 3, 4), 2, 1.5, 0.5, mode="linear"),
    _scaled("last axis", (2, 40), 1, 2.5, mode="linear"),
    _scaled("one axis, nearest", (2, 40, 2), 1, 0.7, 1, **_FLOOR),
    Case(
        "Resize",
        [numbers(1, 2, 4, 5), _REGION, None, int64(1, 2, 6, 7)],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        name="crop",
        constants=(1, 3),
    ),
    Case(
        "Resize",
        [numbers(4, 5), np.array([0.9, 0.1, 0.1, 1.6], np.float32), None, int64(6, 7)],
        {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0},
        name="crop flipped, nearest",
        constants=(1, 3),
    ),
    Case(
        "Upsample",
        [numbers(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)],
        opset=9,
        constants=(1,),
        torch=lambda x, _: pytorch().nn.functional.interpolate(x, scale_factor=(2.0, 3.0)),
    ),
]
