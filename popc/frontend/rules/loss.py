"""Losses."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.common import default_domain

__all__ = ["RULES"]

RULES: Final = default_domain({})
