"""The gradients of GridSample: of what is sampled, and of where."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.image import Corner, Sampling, as_positions
from popc_runtime.kernels.parts.accumulate import clear
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 14  # elements at a time: with their positions they stay in the cache


def _blocks(shape: tuple[int, int, int]) -> Iterator[tuple[int, slice]]:
    """Images and runs of positions of a gradient [N, C, P]."""
    images, channels, positions = shape
    width = max(64, _BLOCK // max(channels, 1))
    for n in range(images):
        for start in range(0, positions, width):
            yield n, slice(start, min(start + width, positions))


def _flat(array: Array) -> Array:
    """[N, C, ...] as [N, C, positions]."""
    return array.reshape(*array.shape[:2], -1)


def _grid_sample_grad(binding: Binding) -> Calls:
    """Gradient [N, C, ...] and grid: each element adds up its shares of what was read from it."""
    grad, packing = as_contiguous(binding, 0)
    grid, out = binding.input(1), binding.output()
    if grad.size == 0:
        return clear(out)
    sampling = Sampling.of(binding, out.shape[2:])
    spread = partial(_spread, _flat(grad), _flat(out))
    if binding.is_constant(1):
        corners = sampling.corners(as_positions(grid))
        return (*packing, clear(out), partial(spread, corners))
    return (*packing, clear(out), lambda: spread(sampling.corners(as_positions(grid))))


def _spread(grad: Array, out: Array, corners: list[Corner]) -> None:
    channels, elements = out.shape[1:]
    rows = np.arange(channels)[:, None] * elements
    for n, block in _blocks(grad.shape):
        flat, part = out[n].reshape(-1), grad[n, :, block]
        positions = np.empty(part.shape, np.intp)
        values = np.empty(part.shape, out.dtype)
        for index, weight in corners:
            inside = np.clip(index[n, block], 0, elements - 1)  # tames what NaN positions gave
            np.add(rows, inside, out=positions)
            np.multiply(part, weight[n, block], out=values, casting="same_kind")
            np.add.at(flat, positions.reshape(-1), values.reshape(-1))


def _grid_sample_grid_grad(binding: Binding) -> Calls:
    """Gradient [N, C, ...], X [N, C, ...] and grid to the gradient of the grid."""
    grad, packing = as_contiguous(binding, 0)
    x, more = as_contiguous(binding, 1)
    grid, out = binding.input(2), binding.output()
    if grad.size == 0:
        return clear(out)
    sampling = Sampling.of(binding, x.shape[2:])
    result = out.reshape(len(out), -1, out.shape[-1])
    return (*packing, *more, lambda: _slopes(_flat(grad), _flat(x), sampling, grid, result))


def _slopes(grad: Array, x: Array, sampling: Sampling, grid: Array, out: Array) -> None:
    """The gradient of a weight is the inner product, over channels, with the element it weighs."""
    positions = as_positions(grid)
    derived = [sampling.corners(positions, coordinate) for coordinate in range(out.shape[-1])]
    for n, block in _blocks(grad.shape):
        part = grad[n, :, block]
        total = np.zeros(out[n, block].shape, np.result_type(x.dtype, np.float32))
        taken = np.empty(part.shape, x.dtype)
        for number, (index, _) in enumerate(derived[0]):
            # mode="clip" lets numpy write to ``taken`` directly, and tames NaN positions
            np.take(x[n], index[n, block], axis=1, out=taken, mode="clip")
            np.multiply(taken, part, out=taken)
            products = taken.sum(axis=0)
            for coordinate, corners in enumerate(derived):
                total[:, coordinate] += products * corners[number][1][n, block]
        out[n, block] = total


KERNELS: Final[dict[str, Kernel]] = {
    "GridSampleGrad": in_float32(_grid_sample_grad),
    "GridSampleGridGrad": in_float32(_grid_sample_grid_grad),
}
