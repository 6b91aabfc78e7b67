"""The optimizer operators of ai.onnx.preview.training."""

from __future__ import annotations

from typing import Final

from popc_runtime.kernels.binding import Kernel

__all__ = ["KERNELS"]

KERNELS: Final[dict[str, Kernel]] = {}
