"""Views, copies, joins, splits, padding: elements move and do not change."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.binding import Kernel

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {}
