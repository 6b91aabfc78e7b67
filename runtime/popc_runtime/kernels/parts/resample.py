"""Sources of the elements of a resized axis: indices and weights, per ONNX Resize.

Resampling is separable, so an axis is described alone.  Coordinates are computed in float32, in
the order of operations that other runtimes use: nearest neighbours hang on the last bit.  An axis
is short, so this does without numpy, as do programs that native kernels run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor, fsum

from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = ["ResizedAxis", "Taps", "nearest_indices", "outside", "taps"]


@frozen
class ResizedAxis:
    """One axis to resize.

    Attributes:
        length: Elements before.
        resized: Elements after.
        scale: Factor asked for; ``resized`` is its product with ``length``, rounded down.
        roi: Start and end of the region (tf_crop_and_resize), in units of the axis.
    """

    length: int
    resized: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


@frozen
class Taps:
    """Weighted sources of each element: ``indices`` and ``weights`` are [resized, taps]."""

    indices: Sequence[Sequence[int]]
    weights: Sequence[Sequence[float]]

    def keeps(self, length: int) -> bool:
        """True if an axis of ``length`` elements stays as it is."""
        rows = enumerate(zip(self.indices, self.weights, strict=True))
        return len(self.indices) == length and all(
            sum(weight for index, weight in zip(*row, strict=True) if index == own) == 1.0
            for own, row in rows
        )

    def transposed(self, length: int) -> Taps:
        """The same weights from the side of the ``length`` sources: the elements they reach."""
        reached: list[list[tuple[int, float]]] = [[] for _ in range(length)]
        for element, row in enumerate(zip(self.indices, self.weights, strict=True)):
            for index, weight in zip(*row, strict=True):
                if weight:
                    reached[index].append((element, weight))
        count = max(1, *map(len, reached))
        indices: list[list[int]] = []
        weights: list[list[float]] = []
        for source, found in enumerate(reached):
            # Unused taps have weight 0, and lie where they do not widen the band of neighbours.
            middle = source * (len(self.indices) - 1) // max(length - 1, 1)
            unused = count - len(found)
            indices.append(
                [taken for taken, _ in found] + [found[-1][0] if found else middle] * unused
            )
            weights.append([share for _, share in found] + [0.0] * unused)
        return Taps(indices, weights)


# How many times longer than an axis what is read of it may be, by a scale that rounds to nothing.
_MOST_WIDER: Final = 64

# Numbers rounded to float32.  A sum, product or quotient of two that is rounded twice, to a double
# and then to float32, is the same as if it were rounded once.
_Singles: TypeAlias = "array[float]"
_Coordinates: TypeAlias = Callable[["_Singles", ResizedAxis], "_Singles"]


def _singles(values: Iterable[float]) -> _Singles:
    return array("f", values)


def _single(value: float) -> float:
    return _singles([value])[0]


def _scaled(x: _Singles, axis: ResizedAxis) -> _Singles:
    scale = _single(axis.scale)
    return _singles([position / scale for position in _singles([position + 0.5 for position in x])])


def _half_pixel(x: _Singles, axis: ResizedAxis) -> _Singles:
    return _singles([position - 0.5 for position in _scaled(x, axis)])


def _pytorch_half_pixel(x: _Singles, axis: ResizedAxis) -> _Singles:
    return _half_pixel(x, axis) if axis.resized > 1 else _singles([0.0] * len(x))


def _half_pixel_symmetric(x: _Singles, axis: ResizedAxis) -> _Singles:
    """Half pixel about the centre of the axis, for scales that do not divide evenly."""
    scale, centre = _single(axis.scale), axis.resized / 2 - 0.5
    return _singles([(position - centre) / scale + (axis.length / 2 - 0.5) for position in x])


def _align_corners(x: _Singles, axis: ResizedAxis) -> _Singles:
    # By the number of elements, as in PyTorch and onnxruntime, whatever scale was asked for: the
    # last one is the last of the input.
    span, last = _single(axis.resized - 1), _single(axis.length - 1)
    if not span:
        return _singles([0.0] * len(x))
    return _singles([position / span for position in _singles([position * last for position in x])])


def _asymmetric(x: _Singles, axis: ResizedAxis) -> _Singles:
    scale = _single(axis.scale)
    return _singles([position / scale for position in x])


def _tf_crop_and_resize(x: _Singles, axis: ResizedAxis) -> _Singles:
    start, end = _singles(axis.roi)
    last = _single(axis.length - 1)
    if axis.resized <= 1:
        return _singles([_single(0.5 * _single(start + end)) * last] * len(x))
    first, width, steps = _single(start * last), _single(end - start), _single(axis.resized - 1)
    along = _singles(
        [position * last for position in _singles([position * width for position in x])]
    )
    return _singles(
        [first + position for position in _singles([position / steps for position in along])]
    )


_COORDINATES: Final[Mapping[str, _Coordinates]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _scaled,
    "tf_crop_and_resize": _tf_crop_and_resize,
}


# What is this close to a half is one that float32 has missed: 4 / (8 / 7) is 3.4999998.
_HALF: Final = 0.5 + 1e-6


def _round_prefer_floor(x: _Singles) -> list[int]:
    return [ceil(position - _HALF) for position in x]


def _round_prefer_ceil(x: _Singles) -> list[int]:
    return [floor(position + _HALF) for position in x]


_NEAREST: Final[Mapping[str, Callable[[_Singles], list[int]]]] = {
    "round_prefer_floor": _round_prefer_floor,
    "round_prefer_ceil": _round_prefer_ceil,
    "floor": lambda x: list(map(floor, x)),
    "ceil": lambda x: list(map(ceil, x)),
}


def _coordinates(axis: ResizedAxis, transformation: str) -> _Singles:
    """Source coordinate of each element."""
    return _COORDINATES[transformation](_singles(range(axis.resized)), axis)


def outside(axis: ResizedAxis, transformation: str) -> list[bool]:
    """True for elements outside the source: those that get the extrapolation value."""
    if transformation != "tf_crop_and_resize":
        return [False] * axis.resized
    return [not 0 <= position <= axis.length - 1 for position in _coordinates(axis, transformation)]


def nearest_indices(axis: ResizedAxis, transformation: str, nearest_mode: str) -> list[int]:
    """The source index of each element."""
    return _within(axis, _NEAREST[nearest_mode](_coordinates(axis, transformation)))


def _within(axis: ResizedAxis, indices: Iterable[int]) -> list[int]:
    last = axis.length - 1
    return [min(max(index, 0), last) for index in indices]


def _linear_filter(distance: float) -> float:
    return max(1 - abs(distance), 0.0)


def _cubic_filter(a: float) -> Callable[[float], float]:
    """Keys' cubic convolution kernel (equation 4 of the 1981 paper) with parameter a."""

    def weight(distance: float) -> float:
        d = abs(distance)
        if d <= 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0

    return weight


def taps(
    axis: ResizedAxis,
    transformation: str,
    *,
    cubic: float | None,
    antialias: bool,
    exclude_outside: bool,
) -> Taps:
    """Sources of linear interpolation, or of cubic with coefficient ``cubic``.

    Antialiasing stretches the filter by 1/scale where the axis shrinks.
    """
    support, weigh = (1, _linear_filter) if cubic is None else (2, _cubic_filter(cubic))
    squeeze = min(axis.scale, 1.0) if antialias else 1.0
    if not squeeze * _MOST_WIDER * max(axis.length, 1) >= 1:
        raise ValueError(
            f"a scale of {axis.scale} does not make {axis.resized:,} of {axis.length:,} elements"
        )
    first = floor(-support / squeeze) + 1
    offsets = range(first, 2 - first)
    indices: list[list[int]] = []
    weights: list[list[float]] = []
    for x in _coordinates(axis, transformation):
        base = floor(x)
        places = [base + offset for offset in offsets]
        row = [weigh((offset - (x - base)) * squeeze) for offset in offsets]
        if exclude_outside:
            pairs = zip(row, places, strict=True)
            row = [weight if 0 <= place < axis.length else 0.0 for weight, place in pairs]
        if exclude_outside or antialias:
            total = fsum(row) or 1.0
            row = [weight / total for weight in row]
        indices.append(_within(axis, places))
        weights.append(row)
    return Taps(indices, weights)
