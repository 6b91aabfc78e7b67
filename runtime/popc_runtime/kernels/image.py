"""GridSample: sampling at run-time positions, in any number of spatial dimensions.

Positions become flat indices and weights, one pair per corner of the interpolation cell; then
every channel gathers the same indices.  If the grid is constant, that first part is done once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous

__all__ = ["KERNELS", "Corner", "Sampling", "as_positions"]

_BLOCK_BYTES: Final = 1 << 17  # gathered at a time: a quarter of the second-level cache
_CUBIC: Final = -0.75  # GridSample fixes the coefficient a of the cubic kernel

# Flat indices [N, P] and weights [N, P]: numbers, or bools where a nearest position is valid.
Corner: TypeAlias = "tuple[Array, Array]"


@dataclass(frozen=True, slots=True)
class Sampling:
    """The steps from positions to corners.  ``spatial`` are the sizes of the sampled dimensions."""

    spatial: tuple[int, ...]
    mode: str
    padding: str
    align_corners: bool

    @classmethod
    def of(cls, binding: Binding, spatial: tuple[int, ...]) -> Sampling:
        """The sampling of an instruction."""
        return cls(
            spatial=spatial,
            mode=binding.text("mode"),
            padding=binding.text("padding_mode"),
            align_corners=bool(binding.integer("align_corners")),
        )

    def corners(self, grid: Array, derived: int | None = None) -> list[Corner]:
        """Indices and weights for ``grid`` [N, P, dimensions], innermost dimension first.

        Instead of the weights, their derivatives by coordinate ``derived`` of the grid (not of
        nearest neighbours, where they are zero).
        """
        corners: list[Corner] = []
        for axis, length in enumerate(self.spatial):
            coordinate = len(self.spatial) - 1 - axis
            choices = self._choices(grid[..., coordinate], length, derive=coordinate == derived)
            if not corners:
                corners = choices
                continue
            corners = [
                (index * length + step, weight * share)
                for index, weight in corners
                for step, share in choices
            ]
        return corners

    def _choices(self, position: Array, length: int, *, derive: bool) -> list[Corner]:
        """The elements of one dimension that positions read, with their weights.

        With ``derive``, with the derivatives of the weights by the position.
        """
        low, high = (0.0, length - 1.0) if self.align_corners else (-0.5, length - 0.5)
        scale = np.asarray((high - low) / 2, position.dtype)
        given = x = low + (position + 1) * scale
        if self.mode == "nearest":
            x = np.rint(x)
        if self.mode != "cubic":  # whose four elements are replaced one by one, as PyTorch does
            x = self._padded(x, low, high, length)
        base = np.floor(x)
        weights = (_SLOPES if derive else _TAPS)[self.mode](x - base)
        if derive:
            turn = scale * self._direction(given, low, high, length)
            weights = [weight * turn for weight in weights]
        first = 0 if self.mode != "cubic" else -1
        return [
            self._choice(base + (first + number), weight, length, (low, high))
            for number, weight in enumerate(weights)
        ]

    def _direction(self, x: Array, low: float, high: float, length: int) -> Array:
        """The slope of `_padded` in ``x``: 1, -1, or 0 where it stands still."""
        if self.mode == "cubic" or self.padding == "zeros":
            return np.ones_like(x)
        if self.padding == "border":
            return ((x > 0) & (x < length - 1)).astype(x.dtype)
        span = max(high - low, np.finfo(x.dtype).tiny)
        return np.where(np.floor((x - low) / span) % 2 == 0, 1, -1).astype(x.dtype)

    def _choice(
        self, index: Array, weight: Array, length: int, edges: tuple[float, float]
    ) -> Corner:
        """One element; where it is outside it is replaced, or counts for nothing."""
        if self.padding == "zeros":
            weight = weight * ((index >= 0) & (index < length))
        else:
            index = self._padded(index, *edges, length)
        return np.clip(index, 0, length - 1).astype(np.intp), weight

    def _padded(self, x: Array, low: float, high: float, length: int) -> Array:
        """Positions beyond the edges, moved inside."""
        if self.padding == "border":
            inside = (x >= low) & (x <= high)
            return np.where(inside, x, np.clip(x, 0, length - 1))
        if self.padding == "reflection":
            return _reflected(x, low, high)
        return x


def _reflected(x: Array, low: float, high: float) -> Array:
    """``x`` mirrored at the edges until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    distance = np.mod(x - x.dtype.type(low), x.dtype.type(2 * span))
    mirrored = np.minimum(distance, x.dtype.type(2 * span) - distance) + x.dtype.type(low)
    return np.where((x < low) | (x > high), mirrored, x)


def _nearest_taps(fraction: Array) -> list[Array]:
    return [np.ones(fraction.shape, np.bool_)]


def _linear_taps(fraction: Array) -> list[Array]:
    return [1 - fraction, fraction]


def _cubic_taps(fraction: Array) -> list[Array]:
    """Keys' cubic convolution at the distances of the four neighbours."""
    a = fraction.dtype.type(_CUBIC)
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (fraction, 1 - fraction)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (fraction + 1, 2 - fraction)]
    return [far[0], near[0], near[1], far[1]]


def _linear_slopes(fraction: Array) -> list[Array]:
    one = np.ones_like(fraction)
    return [-one, one]


def _cubic_slopes(fraction: Array) -> list[Array]:
    """The derivatives of `_cubic_taps`."""
    a = fraction.dtype.type(_CUBIC)
    near = [(3 * (a + 2) * d - 2 * (a + 3)) * d for d in (fraction, 1 - fraction)]
    far = [(3 * a * d - 10 * a) * d + 8 * a for d in (fraction + 1, 2 - fraction)]
    return [far[0], near[0], -near[1], -far[1]]


_TAPS: Final = {"nearest": _nearest_taps, "linear": _linear_taps, "cubic": _cubic_taps}
_SLOPES: Final = {"linear": _linear_slopes, "cubic": _cubic_slopes}


def _grid_sample(binding: Binding) -> Calls:
    """X [N, C, ...] sampled at grid [N, ..., dimensions] (ONNX GridSample-20)."""
    x, before = as_contiguous(binding, 0)
    grid, out = binding.input(1), binding.output()
    batch, channels = x.shape[:2]
    if out.size == 0:
        return ()
    sampling = Sampling.of(binding, x.shape[2:])
    gather = _Gather(
        x.reshape(batch, channels, -1), out.reshape(batch, channels, -1), sampling.mode, binding
    )
    if binding.is_constant(1):
        corners = sampling.corners(as_positions(grid))
        return (*before, partial(gather, corners))
    return (*before, lambda: gather(sampling.corners(as_positions(grid))))


def as_positions(grid: Array) -> Array:
    """The grid as [N, P, dimensions], in the precision that positions are computed in."""
    wide = np.asarray(grid, np.result_type(grid.dtype, np.float32))
    return wide.reshape(len(grid), prod(grid.shape[1:-1]), grid.shape[-1])


class _Gather:
    """Weighted sums of gathered elements, in blocks of positions that stay in the cache."""

    def __init__(self, x: Array, out: Array, mode: str, binding: Binding) -> None:
        self.x, self.out, self.is_nearest = x, out, mode == "nearest"
        channels, positions = out.shape[1:]
        width = min(positions, max(64, _BLOCK_BYTES // (channels * 8)))
        work = np.result_type(x.dtype, np.float32)
        self.blocks = [slice(at, min(at + width, positions)) for at in range(0, positions, width)]
        self.taken = binding.scratch.take((channels * width,), x.dtype)
        self.term = binding.scratch.take((channels * width,), work)
        self.total = binding.scratch.take((channels * width,), work)

    def __call__(self, corners: list[Corner]) -> None:
        for n in range(len(self.out)):
            for block in self.blocks:
                mine = [(index[n, block], weight[n, block]) for index, weight in corners]
                if self.is_nearest:
                    self._pick(n, block, *mine[0])
                else:
                    self._blend(n, block, mine)

    def _pick(self, n: int, block: slice, index: Array, valid: Array) -> None:
        target = self.out[n, :, block]
        np.copyto(target, self._take(n, index))
        if not valid.all():
            np.copyto(target, 0, where=~valid)

    def _blend(self, n: int, block: slice, corners: list[Corner]) -> None:
        shape = self.out[n, :, block].shape
        total, term = _front(self.total, shape), _front(self.term, shape)
        for number, (index, weight) in enumerate(corners):
            goal = term if number else total
            np.multiply(self._take(n, index), weight, out=goal, casting="same_kind")
            if number:
                np.add(total, term, out=total)
        np.copyto(self.out[n, :, block], total, casting="unsafe")

    def _take(self, n: int, index: Array) -> Array:
        taken = _front(self.taken, (self.x.shape[1], len(index)))
        # mode="clip" lets numpy write to ``taken`` directly, and tames what NaN positions gave
        return np.take(self.x[n], index, axis=1, out=taken, mode="clip")


def _front(buffer: Array, shape: tuple[int, ...]) -> Array:
    return buffer[: prod(shape)].reshape(shape)


KERNELS: Final[dict[str, Kernel]] = {"GridSample": _grid_sample}
