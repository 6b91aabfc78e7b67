"""Conversions between element types."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.blocking import coalesce, conversion

__all__ = ["KERNELS"]


def _cast(binding: Binding) -> Calls:
    """Convert as C does: floats to integers toward zero, wider integers by dropping high bits."""
    out, x = coalesce(binding.output(), [binding.input(0)])
    if out.dtype == np.bool_:
        return partial(np.not_equal, x, np.asarray(0, x.dtype), out=out)
    return conversion(out, x, binding.scratch)


def _bit_cast(binding: Binding) -> Calls:
    """The same bits under another element type of the same width."""
    out = binding.output()
    return partial(np.copyto, out, binding.input(0).view(out.dtype))


KERNELS: Final[dict[str, Kernel]] = {
    "BitCast": MoveKernel(_bit_cast),
    "Cast": _cast,
}
