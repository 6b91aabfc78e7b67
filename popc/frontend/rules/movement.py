"""Views, copies, joins, splits, padding: elements move and do not change."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.common import default_domain

__all__ = ["RULES"]

RULES: Final = default_domain({})
