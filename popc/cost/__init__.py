"""The costs of a program on a target: cycles of every op, bytes of every tile."""

from __future__ import annotations

from popc.cost.decode import decode_report
from popc.cost.estimate import estimate_costs, estimate_execution
from popc.cost.execution import encode_execution
from popc.cost.machine import CostMemo
from popc.cost.phases import Cycles, Phase
from popc.cost.planner import Planner
from popc.cost.report import (
    CODE_CATEGORIES,
    Categories,
    CostReport,
    LiveStep,
    LiveTensor,
    MemoryReport,
    OpCost,
)
from popc.cost.settings import CostSettings
from popc.cost.text import format_costs

__all__ = [
    "CODE_CATEGORIES",
    "Categories",
    "CostMemo",
    "CostReport",
    "CostSettings",
    "Cycles",
    "LiveStep",
    "LiveTensor",
    "MemoryReport",
    "OpCost",
    "Phase",
    "Planner",
    "decode_report",
    "encode_execution",
    "estimate_costs",
    "estimate_execution",
    "format_costs",
]
