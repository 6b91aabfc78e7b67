"""Counts, ranks and bins."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, pure
from popc_runtime.kernels.core.blocking import split

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 14  # elements that are compared with all levels while they are in the cache


def _bucketize(binding: Binding) -> Array:
    x, boundaries = binding.input(0), binding.input(1)
    return boundaries.searchsorted(x, side="right" if binding.integer("right") else "left")


def _bin_count(binding: Binding) -> Calls:
    """Counts what is below each level: faster than a search while there are few levels.

    What is not a number is below none.
    """
    x, levels, out = binding.input(0), binding.input(1), binding.output()
    blocks = [block for (block,) in split(x, [], _BLOCK)]
    size = max((block.size for block in blocks), default=0)
    hits = binding.scratch.take((size,), np.bool_)
    sizes = binding.scratch.take((size,), x.dtype) if binding.integer("absolute") else None
    return partial(_count, blocks, levels, hits, sizes, out)


def _count(
    blocks: list[Array], levels: Array, hits: Array, sizes: Array | None, out: Array
) -> None:
    below = np.zeros(len(levels) + 2, np.int64)
    for block in blocks:
        below[-1] += block.size
        mask = hits[: block.size].reshape(block.shape)
        values = block
        if sizes is not None:
            values = sizes[: block.size].reshape(block.shape)
            np.absolute(block, out=values)
        for number, level in enumerate(levels, start=1):
            np.less(values, level, out=mask)
            below[number] += np.count_nonzero(mask)
    np.copyto(out, np.diff(below), casting="unsafe")


def _median(binding: Binding) -> tuple[Array, Array]:
    x = binding.input(0)
    axes = [axis % x.ndim for axis in binding.integers("axes")]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in kept)
    rows = x.transpose(*kept, *sorted(axes)).reshape(*shape, -1)
    middle = (rows.shape[-1] - 1) // 2
    places = np.argpartition(rows, middle, axis=-1)[..., middle : middle + 1]
    values = np.take_along_axis(rows, places, axis=-1)
    result = binding.optional_output(0)
    wanted = binding.output(1).shape if result is None else result.shape
    return values.reshape(wanted), places.reshape(wanted)


KERNELS: Final[dict[str, Kernel]] = {
    "BinCount": _bin_count,
    "Bucketize": pure(_bucketize),
    "ReduceMedian": pure(_median),
}
