"""Transfers from and to streaming memory, which here is memory like any other."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls, is_same_memory

__all__ = ["KERNELS"]


def _moved(binding: Binding) -> Calls:
    """Copy each operand to the output of its number."""
    pairs = ((binding.input(i), binding.output(i)) for i in range(len(binding.outputs)))
    return tuple(
        call
        for source, target in pairs
        if not is_same_memory(target, source)
        for call in copy_calls(target, source)
    )


KERNELS: Final[dict[str, Kernel]] = {
    "RemoteLoad": MoveKernel(_moved),
    "RemoteStore": MoveKernel(_moved),
}
