"""Resizes of images, and what feature pyramids do with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.layers.common import scaled
from tools.campaigns.random_models.value import Value

__all__ = ["pyramid", "resize", "resize_node", "resize_to"]

_PLACES = ("half_pixel", "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _image(builder: Builder) -> Value:
    return builder.pick(lambda x: x.is_float and len(x.shape) in {3, 4, 5} and min(x.shape) > 0)


def _how(builder: Builder, x: Value, *, scaled_by: float = 1.0) -> dict[str, Any]:
    """Attributes of a Resize; not those where onnxruntime and the standard part."""
    mode = builder.choice(["nearest", "linear", "linear", "cubic"])
    if len(x.shape) != 4 and mode == "cubic":
        mode = "linear"
    places = [*_PLACES, *(["half_pixel_symmetric"] if builder.opset >= 19 else [])]
    if scaled_by % 1:
        places = ["half_pixel", "asymmetric", "pytorch_half_pixel"]
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": builder.choice(places)}
    if mode == "nearest":
        rounded = ["round_prefer_floor", "round_prefer_ceil"]
        symmetric = how["coordinate_transformation_mode"] == "half_pixel_symmetric"
        how["nearest_mode"] = builder.choice(rounded if symmetric else [*rounded, "floor", "ceil"])
    if mode == "cubic":
        how["cubic_coeff_a"] = builder.choice([-0.75, -0.5])
        how["exclude_outside"] = builder.number(0, 1)
    if mode != "nearest" and builder.opset >= 18 and builder.chance(0.2):
        how["antialias"] = 1
    return how


def resize(builder: Builder) -> None:
    """By factors along the spatial axes."""
    x = _image(builder)
    factor = builder.choice([2.0, 2.0, 2.0, 3.0, 0.5, 1.5, 0.7])
    factors = [factor if builder.chance(0.85) else builder.choice([1.0, 2.0]) for _ in x.shape[2:]]
    scales = builder.constant(np.array([1, 1, *factors], np.float32))
    builder.put("Resize", [x.name, None, scales], **_how(builder, x, scaled_by=factor))


def resize_to(builder: Builder) -> None:
    """To given extents."""
    x = _image(builder)
    extents = [builder.extent() for _ in x.shape[2:]]
    _to(builder, x, (*x.shape[:2], *extents))


def resize_node(builder: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """A Resize to a given shape, which does not go to the pool."""
    operands = [x.name, None, None, builder.ints(*shape)]
    return builder.emit("Resize", operands, **_how(builder, x))[0]


def _to(builder: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    resized = resize_node(builder, x, shape)
    builder.keep(resized)
    return resized


def pyramid(builder: Builder) -> None:
    """Bring an image to the extents of another, and join them."""
    fine = _image(builder)
    coarse = builder.like(
        fine,
        lambda y: (
            len(y.shape) == len(fine.shape)
            and y.shape[0] == fine.shape[0]
            and y.shape[2:] != fine.shape[2:]
            and min(y.shape) > 0
        ),
    )
    resized = _to(builder, coarse, (*coarse.shape[:2], *fine.shape[2:]))
    if builder.chance(0.7):
        order = [resized.name, fine.name][:: builder.choice([1, -1])]
        builder.put("Concat", order, axis=1)
        return
    shape = (resized.shape[1], fine.shape[1], *(1 for _ in fine.shape[2:]))
    weights = builder.constant(scaled(builder, shape, fine.shape[1], fine))
    lateral = builder.emit("Conv", [fine.name, weights])[0]
    builder.put("Add", [resized.name, lateral.name])
