"""The translation of each ONNX operator to IR ops: (domain, op type) -> rule, a file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.frontend.node import ImportRule
from popc.frontend.rules.families import FAMILIES
from popc_runtime.ground.tables import LazyTable

__all__ = ["RULES"]

RULES: Final[Mapping[tuple[str, str], ImportRule]] = LazyTable(__name__, "RULES", FAMILIES)
