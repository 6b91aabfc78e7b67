"""The translation of each ONNX operator to IR ops: (domain, op type) -> rule, a file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.frontend.node import ImportRule
from popc.frontend.rules import graphcore, microsoft, ml, onnx
from popc_runtime.ground.tables import merge_families

__all__ = ["RULES"]

_FAMILIES: Final = (*onnx.FAMILIES, *graphcore.FAMILIES, *microsoft.FAMILIES, *ml.FAMILIES)

RULES: Final[Mapping[tuple[str, str], ImportRule]] = merge_families(
    (family, family.RULES) for family in _FAMILIES
)
