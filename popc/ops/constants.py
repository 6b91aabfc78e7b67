"""Questions about operands that are known when a program is compiled."""

from __future__ import annotations

from popc.ir import Tensor
from popc_runtime.kernels.core.stored import floats_of

__all__ = ["scalar_value"]


def scalar_value(tensor: Tensor | None) -> float | None:
    """The value of a constant of one element."""
    if tensor is None or tensor.data is None or tensor.type.size != 1:
        return None
    return float(floats_of(tensor.data, tensor.type.dtype).item())
