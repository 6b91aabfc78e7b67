"""Copies between the tiles that talk with the host and those that compute."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls

__all__ = ["KERNELS"]


def _copy(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0))


KERNELS: Final[dict[str, Kernel]] = {"IoTileCopy": MoveKernel(_copy)}
