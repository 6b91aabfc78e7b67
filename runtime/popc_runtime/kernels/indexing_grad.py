"""The gradient of Gather: what was read several times adds up."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.indices import normal_indices
from popc_runtime.kernels.parts.accumulate import clear, combine_rows
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]


def _gather_grad(binding: Binding) -> Calls:
    """The gradient [..., *indices, ...]: each index adds its part to the element it names."""
    grad, packing = as_contiguous(binding, 0)
    out, axis = binding.output(), binding.integer("axis")
    before, size, after = out.shape[:axis], out.shape[axis], out.shape[axis + 1 :]
    outer, inner = prod(before), prod(after)
    normal, calls = normal_indices(binding, 1, size)
    rows = normal.reshape(1, -1)
    if outer > 1:
        firsts = np.arange(0, outer * size, size)[:, None]
        spread = binding.scratch.take((outer, rows.size), np.int64)
        calls = (*calls, partial(np.add, rows, firsts, out=spread))
        rows = spread
    table, values = out.reshape(outer * size, inner), grad.reshape(rows.size, inner)
    adding = combine_rows(binding.scratch, np.add, table, rows.reshape(-1), values)
    return (*packing, *calls, clear(out), *adding)


KERNELS: Final[dict[str, Kernel]] = {"GatherGrad": in_float32(_gather_grad)}
