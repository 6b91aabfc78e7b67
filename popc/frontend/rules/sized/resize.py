"""Resize to sizes that data decides, or of what has such sizes: axis by axis, by gathering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.rules.sized.shapes import gathered_along
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["RULES"]


@frozen
class _Axis:
    """The way an axis is resized.

    Attributes:
        axis: Its number.
        size: Its new size, one int64.
        most: The most that its new size can be.
        length: Its new size, one float32, before it was rounded down.
        scale: New size over old size, one float32.
    """

    axis: int
    size: Tensor
    most: int
    length: Tensor
    scale: Tensor


def _resize(node: SizedNode) -> Value:
    """Axes that keep their size stay; where all others are known it is the op for known sizes."""
    x = node.sized(0)
    is_cropped = node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if is_cropped and node.known(1) is None:
        raise node.refuse("the region to crop depends on a run-time value")
    axes = _changed_axes(node, x)
    if not axes and not is_cropped:
        return node.value_of(x.padded, x.counts)
    is_constant = _has_sizes(node) or node.known(_scales_at(node)) is not None
    if is_constant and all(_is_known(node, x, each) for each in axes):
        return _of_known_axes(node, x, axes)
    taps = _taps(node)
    dtype = x.padded.type.dtype
    if taps is not _nearest and not dtype.is_float:
        raise node.refuse("interpolates between whole numbers, to a size that data decides")
    if taps is not _nearest and dtype is not DType.FLOAT32:
        x = SizedValue(node.emit("Cast", [x.padded], {"to": DType.FLOAT32.value}), x.counts)
    for each in axes:
        x = _resized(node, x, each, taps)
    padded = x.padded
    if padded.type.dtype is not dtype:
        padded = node.emit("Cast", [padded], {"to": dtype.value})
    return node.value_of(padded, x.counts)


def _is_known(node: SizedNode, x: SizedValue, each: _Axis) -> bool:
    return x.counts[each.axis] is None and node.table.scalar(each.size).known is not None


def _of_known_axes(node: SizedNode, x: SizedValue, axes: Sequence[_Axis]) -> Value:
    """The new shape, or the scales that the model has, with the padding of all other axes."""
    if not _has_sizes(node):
        operands = [node.optional(index) for index in range(1, len(node.inputs))]
        (padded,) = node.plain([x.padded, *operands])
        return node.value_of(padded, x.counts)
    if node.has("axes"):
        raise node.refuse("names axes of a tensor of which data decides a size")
    shape = list(x.padded.type.shape)
    for each in axes:
        shape[each.axis] = each.most
    sizes = node.constant(np.array(shape, np.int64))
    (padded,) = node.plain([x.padded, node.optional(1), None, sizes])
    return node.value_of(padded, x.counts)


_FOUR_OPERANDS: Final = 11  # the opset from which on Resize has sizes


def _changed_axes(node: SizedNode, x: SizedValue) -> list[_Axis]:
    """The axes that may get another size.

    Raises:
        ModelError: neither sizes nor scales are given, or not one for each axis.
        DataDependent: nothing bounds a size, or a policy about ratios decides it.
    """
    rank = len(x.counts)
    axes = list(range(rank))
    if node.has("axes"):
        axes = [normal_axis(axis, rank) for axis in node.integers("axes")]
    by_size = _has_sizes(node)
    place = 3 if by_size else _scales_at(node)
    if not _is_given(node, place):
        raise ModelError("either 'scales' or 'sizes' must be given")
    numbers = node.integers_in(3) if by_size else _numbers_in(node, place)
    if len(numbers) != len(axes):
        raise ModelError(f"{len(numbers)} sizes or scales for {len(axes)} dimensions")
    if by_size and node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refuse("keeps a ratio of sizes that data decides")
    make = _by_size if by_size else _by_scale
    found = [make(node, x, axis, number) for axis, number in zip(axes, numbers, strict=True)]
    return [each for each in found if each is not None]


def _has_sizes(node: SizedNode) -> bool:
    return node.version >= _FOUR_OPERANDS and _is_given(node, 3)


def _scales_at(node: SizedNode) -> int:
    return 2 if node.version >= _FOUR_OPERANDS else 1


def _is_given(node: SizedNode, index: int) -> bool:
    value = node.optional_value(index)
    if value is None:
        return False
    return isinstance(value, SizedValue) or node.input(index).type.size > 0


def _numbers_in(node: SizedNode, index: int) -> list[Tensor]:
    """The elements of a list of numbers, each one float32."""
    tensor = node.input(index)
    flat = node.emit("Reshape", [tensor], {"shape": (tensor.type.size,)})
    places = [node.constant(np.int64(place)) for place in range(tensor.type.size)]
    return [node.emit("Gather", [flat, place], {"axis": 0}) for place in places]


def _by_size(node: SizedNode, x: SizedValue, axis: int, number: Tensor) -> _Axis | None:
    if node.table.scalar(number) == node.size(x, axis):
        return None
    size, most = node.planned(number)
    old = _float(node, node.count(x, axis))
    length = _float(node, size)
    return _Axis(axis, size, most, length, node.emit("Div", [length, old]))


def _by_scale(node: SizedNode, x: SizedValue, axis: int, scale: Tensor) -> _Axis | None:
    """The new size is rounded down after a product in float32."""
    known = node.importer.known_value(scale)
    if known is not None and float(known) == 1:
        return None
    product = node.emit("Mul", [_float(node, node.count(x, axis)), scale])
    number = node.emit("Cast", [node.emit("Floor", [product])], {"to": DType.INT64.value})
    size, most = node.planned(number)
    return _Axis(axis, size, most, product, scale)


def _float(node: SizedNode, number: Tensor) -> Tensor:
    return node.emit("Cast", [number], {"to": DType.FLOAT32.value})


# -- one axis --------------------------------------------------------------------------------------

# Gives the places that an axis is read at and their weights (None: 1), from coordinates.
_Taps = Callable[[SizedNode, Tensor, Tensor], "list[tuple[Tensor, Tensor | None]]"]


def _resized(node: SizedNode, x: SizedValue, each: _Axis, taps: _Taps) -> SizedValue:
    """Sums of elements along an axis, at places that follow from its new size."""
    old = node.count(x, each.axis)
    last = node.sub(old, node.int64(1))
    behind = len(x.counts) - each.axis - 1
    total: Tensor | None = None
    for place, weight in taps(node, _coordinates(node, each, old), _float(node, last)):
        within = node.emit("Max", [node.emit("Min", [place, last]), node.int64(0)])
        part = gathered_along(node, x, each.axis, within, each.size).padded
        if weight is not None:
            shape: tuple[int, ...] = (each.most, *(1,) * behind)
            spread = node.emit("Reshape", [weight], {"shape": shape})
            part = node.emit("Mul", [part, spread])
        total = part if total is None else node.emit("Add", [total, part])
    assert total is not None
    counts = (*x.counts[: each.axis], each.size, *x.counts[each.axis + 1 :])
    return SizedValue(total, counts)


def _coordinates(node: SizedNode, each: _Axis, old: Tensor) -> Tensor:
    """For each place of the result its coordinate in the operand (ONNX Resize-19), float32."""
    mode = node.text("coordinate_transformation_mode", "asymmetric")
    places = node.constant(node.positions(each.most).astype(np.float32))
    half = node.constant(np.float32(0.5))
    if mode == "asymmetric":
        return node.emit("Div", [places, each.scale])
    if mode == "align_corners":
        one = node.constant(np.float32(1))
        steps = node.emit("Max", [node.emit("Sub", [each.length, one]), one])
        last = _float(node, node.sub(old, node.int64(1)))
        return node.emit("Div", [node.emit("Mul", [places, last]), steps])
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise node.refuse(f"{mode} is only available for sizes that are known")
    middles = node.emit("Div", [node.emit("Add", [places, half]), each.scale])
    found = node.emit("Sub", [middles, half])
    if mode == "half_pixel":
        return found
    several = node.emit("Greater", [each.size, node.int64(1)])
    return node.emit("Where", [several, found, node.constant(np.float32(0))])


def _taps(node: SizedNode) -> _Taps:
    mode = node.text("mode", "nearest")
    if node.integer("antialias", 0) or node.integer("exclude_outside", 0):
        raise node.refuse("antialias and exclude_outside are only available for known sizes")
    found = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}.get(mode)
    if found is None:
        raise ModelError(f"unknown mode {mode!r}")
    return found


def _whole(node: SizedNode, numbers: Tensor) -> Tensor:
    return node.emit("Cast", [numbers], {"to": DType.INT64.value})


def _nearest(
    node: SizedNode, coordinates: Tensor, last: Tensor
) -> list[tuple[Tensor, Tensor | None]]:
    """A number close to a half is one that float32 has missed: 4 / (8 / 7) is 3.4999998."""
    del last
    mode = node.text("nearest_mode", "round_prefer_floor")
    coordinates = node.emit("Cast", [coordinates], {"to": DType.FLOAT64.value})
    half = node.constant(np.float64(0.5 + 1e-6))
    if mode == "floor":
        found = node.emit("Floor", [coordinates])
    elif mode == "ceil":
        found = node.emit("Ceil", [coordinates])
    elif mode == "round_prefer_ceil":
        found = node.emit("Floor", [node.emit("Add", [coordinates, half])])
    elif mode == "round_prefer_floor":
        found = node.emit("Ceil", [node.emit("Sub", [coordinates, half])])
    else:
        raise ModelError(f"unknown nearest_mode {mode!r}")
    return [(_whole(node, found), None)]


def _linear(
    node: SizedNode, coordinates: Tensor, last: Tensor
) -> list[tuple[Tensor, Tensor | None]]:
    """Coordinates outside of the operand are those of its ends."""
    zero, one = node.constant(np.float32(0)), node.constant(np.float32(1))
    within = node.emit("Max", [node.emit("Min", [coordinates, last]), zero])
    floor = node.emit("Floor", [within])
    share = node.emit("Sub", [within, floor])
    above = node.emit("Add", [floor, one])
    rest = node.emit("Sub", [one, share])
    return [(_whole(node, floor), rest), (_whole(node, above), share)]


def _cubic(
    node: SizedNode, coordinates: Tensor, last: Tensor
) -> list[tuple[Tensor, Tensor | None]]:
    """Four elements, by the polynomials of Keys with their coefficient ``cubic_coeff_a``."""
    del last
    a = node.number("cubic_coeff_a", -0.75)
    floor = node.emit("Floor", [coordinates])
    share = node.emit("Sub", [coordinates, floor])
    # Factors of the third power of the distance and down to the constant, near and far.
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    found: list[tuple[Tensor, Tensor | None]] = []
    for offset, factors in ((-1, far), (0, near), (1, near), (2, far)):
        step = node.constant(np.float32(offset))
        distance = node.emit("Abs", [node.emit("Sub", [share, step])])
        weight = node.constant(np.float32(factors[0]))
        for factor in factors[1:]:
            product = node.emit("Mul", [weight, distance])
            weight = node.emit("Add", [product, node.constant(np.float32(factor))])
        found.append((_whole(node, node.emit("Add", [floor, step])), weight))
    return found


RULES: Final[dict[str, SizedRule]] = {"Resize": _resize}
