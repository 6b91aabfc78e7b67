"""Softmax and LogSoftmax."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.common import along_axis, default_domain

__all__ = ["RULES"]

RULES: Final = default_domain(
    {
        "LogSoftmax": along_axis,
        "Softmax": along_axis,
    }
)
