"""Instructions that pass tensors from chip to chip, and from cycle to cycle of a pipeline.

All chips are one here: a copy from chip to chip is a copy at most.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls, is_same_memory

__all__ = ["KERNELS"]


def _copy(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0))


def _stash(binding: Binding) -> Calls:
    row, out, value = binding.input(0), binding.output(), binding.input(1)
    number = binding.input(2).reshape(())
    first = () if is_same_memory(row, out) else copy_calls(out, row)
    if binding.is_constant(2):
        return (*first, *copy_calls(out[int(number) % len(out), ...], value))

    def call() -> None:
        np.copyto(out[int(number) % len(out), ...], value)

    return (*first, call)


def _restore(binding: Binding) -> Calls:
    row, out, number = binding.input(0), binding.output(), binding.input(1).reshape(())
    if binding.is_constant(1):
        return copy_calls(out, row[int(number) % len(row), ...])

    def call() -> None:
        np.copyto(out, row[int(number) % len(row), ...])

    return call


KERNELS: Final[dict[str, Kernel]] = {
    "Boundary": MoveKernel(_copy),
    "IpuCopy": MoveKernel(_copy),
    "Restore": MoveKernel(_restore),
    "Stash": MoveKernel(_stash),
}
