"""The definition of each op: one table row per op, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.ops.families import FAMILIES
from popc.ops.spec import InferRule, OperandTypes, OpSpec, OutputView, ViewRule
from popc_runtime.ground.tables import LazyTable

__all__ = ["OPS", "InferRule", "OpSpec", "OperandTypes", "OutputView", "ViewRule"]

OPS: Final[Mapping[str, OpSpec]] = LazyTable(__name__, "OPS", FAMILIES)
