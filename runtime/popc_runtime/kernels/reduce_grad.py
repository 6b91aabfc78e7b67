"""Gradients of running reductions."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Kernel, pure
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]


def _running_product(binding: Binding) -> Array:
    """Operands are the gradient, the factors and maybe the axis.

    Factor i is in the products of places j >= i (exclusive: j > i).  Its gradient is the product
    of the factors before it times s, the sum over j of the gradient of place j times the factors
    between the two: s[i] = g[i] + x[i + 1] s[i + 1] (exclusive: g[i + 1] in place of g[i]).  No
    factor is divided by, so that they may be 0.
    """
    axis = binding.optional(2)
    along = binding.integer("axis") if axis is None else int(axis.reshape(()))
    g, x = (np.moveaxis(binding.input(index), along, 0) for index in range(2))
    if binding.integer("reverse", 0):
        g, x = g[::-1], x[::-1]
    if binding.integer("exclusive", 0):
        g = np.concatenate([g[1:], np.zeros_like(g[:1])])
    later = g.copy()
    for place in range(len(g) - 2, -1, -1):
        later[place] += x[place + 1] * later[place + 1]
    result: Array = later * np.cumprod(np.concatenate([np.ones_like(x[:1]), x[:-1]]), axis=0)
    if binding.integer("reverse", 0):
        result = result[::-1]
    return np.moveaxis(result, 0, along)


KERNELS: Final[dict[str, Kernel]] = {"CumProdGrad": in_float32(pure(_running_product))}
