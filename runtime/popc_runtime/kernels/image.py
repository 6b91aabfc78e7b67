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
from popc_runtime.kernels.binding import Binding, Calls, Kernel
from popc_runtime.kernels.copying import as_contiguous

__all__ = ["KERNELS"]

_BLOCK_BYTES: Final = 1 << 17  # gathered at a time: a quarter of the second-level cache
_CUBIC: Final = -0.75  # GridSample fixes the coefficient a of the cubic kernel

# Flat indices [N, P] and weights [N, P]: numbers, or bools where a nearest position is valid.
_Corner: TypeAlias = "tuple[Array, Array]"


@dataclass(frozen=True, slots=True)
class _Sampling:
    """How positions become corners.  ``spatial`` are the sizes of the sampled dimensions."""

    spatial: tuple[int, ...]
    mode: str
    padding: str
    align_corners: bool

    def corners(self, grid: Array) -> list[_Corner]:
        """Indices and weights for ``grid`` [N, P, dimensions], innermost dimension first."""
        corners: list[_Corner] = []
        for axis, length in enumerate(self.spatial):
            position = grid[..., len(self.spatial) - 1 - axis]
            choices = self._choices(position, length)
            if not corners:
                corners = choices
                continue
            corners = [
                (index * length + step, weight * share)
                for index, weight in corners
                for step, share in choices
            ]
        return corners

    def _choices(self, position: Array, length: int) -> list[_Corner]:
        """The elements of one dimension that positions read, with their weights."""
        low, high = (0.0, length - 1.0) if self.align_corners else (-0.5, length - 0.5)
        x = low + (position + 1) * np.asarray((high - low) / 2, position.dtype)
        if self.mode == "nearest":
            x = np.rint(x)
        if self.mode != "cubic":  # whose four elements are replaced one by one, as PyTorch does
            x = self._padded(x, low, high, length)
        base = np.floor(x)
        weights = _TAPS[self.mode](x - base)
        first = 0 if self.mode != "cubic" else -1
        return [
            self._choice(base + (first + number), weight, length, (low, high))
            for number, weight in enumerate(weights)
        ]

    def _choice(
        self, index: Array, weight: Array, length: int, edges: tuple[float, float]
    ) -> _Corner:
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


_TAPS: Final = {"nearest": _nearest_taps, "linear": _linear_taps, "cubic": _cubic_taps}


def _grid_sample(binding: Binding) -> Calls:
    """X [N, C, ...] sampled at grid [N, ..., dimensions] (ONNX GridSample-20)."""
    x, before = as_contiguous(binding, 0)
    grid, out = binding.input(1), binding.output()
    batch, channels = x.shape[:2]
    if out.size == 0:
        return ()
    sampling = _Sampling(
        spatial=x.shape[2:],
        mode=binding.text("mode"),
        padding=binding.text("padding_mode"),
        align_corners=bool(binding.integer("align_corners")),
    )
    positions = (batch, prod(grid.shape[1:-1]), len(sampling.spatial))
    gather = _Gather(
        x.reshape(batch, channels, -1), out.reshape(batch, channels, -1), sampling.mode, binding
    )
    if binding.is_constant(1):
        corners = sampling.corners(_wide(grid).reshape(positions))
        return (*before, partial(gather, corners))
    return (*before, lambda: gather(sampling.corners(_wide(grid).reshape(positions))))


def _wide(grid: Array) -> Array:
    """The grid in the precision that positions are computed in."""
    return np.asarray(grid, np.result_type(grid.dtype, np.float32))


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

    def __call__(self, corners: list[_Corner]) -> None:
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

    def _blend(self, n: int, block: slice, corners: list[_Corner]) -> None:
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
