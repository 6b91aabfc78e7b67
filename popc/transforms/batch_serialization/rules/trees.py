"""Ensembles of trees: every row goes its own way."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, along

__all__ = ["RULES"]

RULES: Final[dict[str, Rule]] = {"TreeEnsemble": along({0: 0}, (0,))}
