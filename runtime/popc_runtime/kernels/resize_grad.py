"""The gradient of Resize: what an element was weighted with is what it gets of each gradient."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls
from popc_runtime.kernels.parts.accumulate import clear
from popc_runtime.kernels.parts.banded import resampled
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.resize_axes import gradient_taps

__all__ = ["KERNELS"]


def _resize_grad(binding: Binding) -> Calls:
    """The attributes are those of the Resize, but for ``shape``, which is that of its operand."""
    grad, out = binding.input(0), binding.output()
    if grad.size == 0:
        return clear(out)
    transposed = gradient_taps(binding)
    if not transposed:
        return copy_calls(out, grad)
    source, packing = as_contiguous(binding, 0)
    products, result = resampled(binding.scratch, source, out, transposed)
    return (*packing, *products, *(() if result is out else copy_calls(out, result)))


KERNELS: Final[dict[str, Kernel]] = {"ResizeGrad": in_float32(_resize_grad)}
