"""Resize and its predecessor Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import AttributeMap, Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["RULES", "emit_scaled", "mode_attributes"]

# Transformations by which an axis that keeps its size also keeps its elements.
_KEEPING: Final = frozenset(
    {
        "align_corners",
        "asymmetric",
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
    }
)


@frozen
class _Target:
    """Size and scale of every axis of the result."""

    shape: Shape
    scales: tuple[float, ...]


def _resize(node: Node) -> Tensor:
    """Resize-10 has (X, scales); from opset 11 on it has (X, roi, scales, sizes)."""
    if node.version < 11:
        return _resize_simply(node, _scales_of(node, 1))
    x = node.input(0)
    target = _target(node, x.type.shape)
    transformation = node.text("coordinate_transformation_mode")
    if _keeps(target, x.type.shape) and transformation in _KEEPING:
        return x
    attributes: AttributeMap = {
        "shape": target.shape,
        "scales": target.scales,
        "mode": node.text("mode"),
        "coordinate_transformation_mode": transformation,
        **mode_attributes(node),
    }
    if transformation == "tf_crop_and_resize":
        attributes["roi"] = _roi(node, x.type.rank)
        attributes["extrapolation_value"] = node.number("extrapolation_value")
    return node.emit("Resize", [x], attributes)


def _keeps(target: _Target, shape: Shape) -> bool:
    return target.shape == shape and all(scale == 1.0 for scale in target.scales)


def mode_attributes(node: Node) -> AttributeMap:
    """The attributes of a Resize that depend on its mode, with the defaults of opset 11."""
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        return {"nearest_mode": node.text("nearest_mode", "round_prefer_floor")}
    filtering: AttributeMap = {
        "exclude_outside": node.integer("exclude_outside", 0),
        "antialias": node.integer("antialias", 0),
    }
    if mode == "cubic":
        filtering["cubic_coeff_a"] = node.number("cubic_coeff_a", -0.75)
    return filtering


def _target(node: Node, shape: Shape) -> _Target:
    scales = _given(node, 2)
    sizes = _given(node, 3)
    if (scales is None) == (sizes is None):
        raise ModelError("exactly one of 'scales' and 'sizes' must be given")
    axes = _axes(node, len(shape))
    if scales is not None:
        return _from_scales(shape, axes, scales)
    assert sizes is not None
    return _from_sizes(shape, axes, sizes, node.text("keep_aspect_ratio_policy", "stretch"))


def _given(node: Node, index: int) -> Array | None:
    """A list operand; absent and empty mean the same."""
    if node.optional(index) is None:
        return None
    value = node.require_known(index, "the output shape").ravel()
    return value if value.size else None


def _axes(node: Node, rank: int) -> list[int]:
    """The axes that scales, sizes and roi are about."""
    if not node.has("axes"):
        return list(range(rank))
    axes = [normal_axis(axis, rank) for axis in node.integers("axes")]
    if len(set(axes)) != len(axes):
        raise ModelError(f"axes {axes} are not distinct")
    return axes


def _check_count(values: Array, axes: Sequence[int], what: str) -> None:
    if len(values) != len(axes):
        raise ModelError(f"{len(values)} {what} for {len(axes)} dimensions")


def _from_scales(shape: Shape, axes: Sequence[int], values: Array) -> _Target:
    """Sizes are rounded down after a float32 product, as shape inference of ONNX does it."""
    _check_count(values, axes, "scales")
    if not all(value > 0 and np.isfinite(value) for value in values):
        raise ModelError(f"scales {values.tolist()} must be positive")
    resized, scales = list(shape), [1.0] * len(shape)
    for axis, value in zip(axes, values, strict=True):
        scales[axis] = float(value)
        resized[axis] = floor(np.float32(shape[axis]) * np.float32(value))
    return _Target(tuple(resized), tuple(scales))


def _from_sizes(shape: Shape, axes: Sequence[int], values: Array, policy: str) -> _Target:
    _check_count(values, axes, "sizes")
    resized, scales = list(shape), [1.0] * len(shape)
    wanted = {axis: int(value) for axis, value in zip(axes, values, strict=True)}
    factors = {axis: size / shape[axis] for axis, size in wanted.items() if shape[axis]}
    if policy != "stretch" and factors:
        factor = _common_factor(list(factors.values()), policy)
        factors = dict.fromkeys(factors, factor)
        wanted |= {axis: floor(factor * shape[axis] + 0.5) for axis in factors}
    for axis, size in wanted.items():
        resized[axis], scales[axis] = size, factors.get(axis, 1.0)
    return _Target(tuple(resized), tuple(scales))


def _common_factor(factors: Sequence[float], policy: str) -> float:
    if policy == "not_larger":
        return min(factors)
    if policy == "not_smaller":
        return max(factors)
    raise ModelError(f"unknown keep_aspect_ratio_policy {policy!r}")


def _roi(node: Node, rank: int) -> tuple[float, ...]:
    """Starts, then ends, of every axis; whole axes where nothing is said."""
    if node.optional(1) is None:
        raise ModelError("tf_crop_and_resize needs a 'roi'")
    roi = node.require_known(1, "the region to crop").ravel()
    axes = _axes(node, rank)
    _check_count(roi, axes * 2, "roi values")
    starts, ends = [0.0] * rank, [1.0] * rank
    for position, axis in enumerate(axes):
        starts[axis], ends[axis] = float(roi[position]), float(roi[len(axes) + position])
    return (*starts, *ends)


def _upsample(node: Node) -> Tensor:
    """Upsample: scales in two attributes (opset 1), in one (7) or in an operand (9)."""
    if node.version < 7:
        scales = [1.0, 1.0, node.number("height_scale"), node.number("width_scale")]
        return _resize_simply(node, scales)
    if node.version < 9:
        return _resize_simply(node, node.numbers("scales"))
    return _resize_simply(node, _scales_of(node, 1))


def _scales_of(node: Node, index: int) -> list[float]:
    return [float(item) for item in node.require_known(index, "the output shape").ravel()]


def _resize_simply(node: Node, scales: Sequence[float]) -> Tensor:
    """Resize before it had modes: from corners, nearest rounds down when growing, up otherwise."""
    mode = "linear" if node.text("mode") in ("linear", "bilinear") else node.text("mode")
    x = node.input(0)
    if mode != "nearest":
        return _asymmetric(node, x, scales, {"mode": mode})
    for nearest_mode, chosen in (
        ("ceil", [min(scale, 1.0) for scale in scales]),
        ("floor", [max(scale, 1.0) for scale in scales]),
    ):
        x = _asymmetric(node, x, chosen, {"mode": mode, "nearest_mode": nearest_mode})
    return x


def _asymmetric(node: Node, x: Tensor, scales: Sequence[float], attributes: AttributeMap) -> Tensor:
    return emit_scaled(
        node, x, scales, {"coordinate_transformation_mode": "asymmetric", **attributes}
    )


def emit_scaled(node: Node, x: Tensor, scales: Sequence[float], attributes: AttributeMap) -> Tensor:
    """``x``, of as many dimensions as there are scales, resized.

    Raises:
        ModelError: there are more or fewer scales, or one is not positive.
    """
    target = _from_scales(x.type.shape, range(x.type.rank), np.asarray(scales))
    if _keeps(target, x.type.shape):
        return x
    return node.emit("Resize", [x], {"shape": target.shape, "scales": target.scales, **attributes})


RULES: Final = default_domain({"Resize": _resize, "Upsample": _upsample})
