"""Matrix products."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.binding import Kernel

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {}
