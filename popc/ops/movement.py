"""Views, copies, joins, splits, padding: elements move and do not change."""

from __future__ import annotations

from typing import Final

from popc.ops.spec import OpSpec

__all__ = ["OPS"]

OPS: Final[dict[str, OpSpec]] = {}
