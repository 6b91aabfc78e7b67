"""The sizes, scales and regions that Resize and its gradient ask for, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence

from popc_runtime.format.limits import MAX_RESIZED
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Any, TypeVar
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.kernels.parts.resample import ResizedAxis, Taps, nearest_indices, outside, taps

__all__ = ["axis_taps", "gradient_taps", "in_memory_order", "processing_order", "resized_axes"]

_Operands = TypeVar("_Operands", bound="Operands[Any]")


def in_memory_order(binding: _Operands) -> _Operands:
    """The same with the axes in the order of the result's memory: the last ones lie closest."""
    x, out = binding.input(0), binding.output()
    rank = len(out.shape)
    order = sorted(range(rank), key=lambda axis: -abs(out.strides[axis]))
    if order == list(range(rank)):
        return binding
    regions = binding.numbers("roi", (0.0,) * rank + (1.0,) * rank)
    attributes: dict[str, Any] = {
        **binding.attributes,
        "scales": tuple(binding.numbers("scales")[axis] for axis in order),
        "roi": tuple(regions[axis + end] for end in (0, rank) for axis in order),
    }
    return replace(
        binding,
        inputs=(x.transpose(*order), *binding.inputs[1:]),
        outputs=(out.transpose(*order),),
        attributes=attributes,
    )


def resized_axes(
    binding: Operands[Any], before: tuple[int, ...], after: tuple[int, ...]
) -> list[ResizedAxis]:
    """The axes of a tensor of shape ``before`` that is resized to ``after``.

    Raises:
        ValueError: a table of one of them would be too long.
    """
    for old, new in zip(before, after, strict=True):
        if old != new and max(old, new) > MAX_RESIZED:
            raise ValueError(f"an axis of {old:,} elements is resized to {new:,}")
    rank = len(before)
    roi = binding.numbers("roi", (0.0,) * rank + (1.0,) * rank)
    regions = zip(roi[:rank], roi[rank:], strict=True)
    scales = binding.numbers("scales")
    return [ResizedAxis(*item) for item in zip(before, after, scales, regions, strict=True)]


def processing_order(axes: Sequence[ResizedAxis]) -> list[int]:
    """Shrink before growing; of equals, the last axis when there are the fewest lines along it."""
    growth = {number: axis.resized / axis.length for number, axis in enumerate(axes)}
    return sorted(growth, key=lambda axis: (growth[axis], axis if growth[axis] < 1 else -axis))


def axis_taps(binding: Operands[Any], axis: ResizedAxis) -> Taps:
    """The sources of an axis that is interpolated."""
    cubic = binding.text("mode") == "cubic"
    return taps(
        axis,
        binding.text("coordinate_transformation_mode"),
        cubic=binding.number("cubic_coeff_a", -0.75) if cubic else None,
        antialias=bool(binding.integer("antialias", 0)),
        exclude_outside=bool(binding.integer("exclude_outside", 0)),
    )


def gradient_taps(binding: Operands[Any]) -> list[tuple[int, Taps]]:
    """The axes to go through, in order, and what each element of the result is a sum of."""
    axes = resized_axes(binding, binding.output().shape, binding.input(0).shape)
    tables = {number: _sources(binding, axes[number]) for number in processing_order(axes)[::-1]}
    return [
        (number, table.transposed(axes[number].length))
        for number, table in tables.items()
        if not table.keeps(axes[number].length)
    ]


def _sources(binding: Operands[Any], axis: ResizedAxis) -> Taps:
    """Sources of the elements of the resized axis; none, outside the region's source."""
    transformation = binding.text("coordinate_transformation_mode")
    if binding.text("mode") == "nearest":
        indices = nearest_indices(axis, transformation, binding.text("nearest_mode"))
        table = Taps([[index] for index in indices], [[1.0]] * len(indices))
    else:
        table = axis_taps(binding, axis)
    rows = zip(table.weights, outside(axis, transformation), strict=True)
    return Taps(table.indices, [[0.0] * len(row) if away else row for row, away in rows])
