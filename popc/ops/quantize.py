"""Quantisation, and integer matrix products and convolutions."""

from __future__ import annotations

from typing import Final

from popc.ops.spec import OpSpec

__all__ = ["OPS"]

OPS: Final[dict[str, OpSpec]] = {}
