"""Plans for convolutions and matrix products: how their work is split over tiles and time."""

from __future__ import annotations

from popc.cost.planner.gather import GatherPlan, GatherProblem, plan_gather, plan_scatter
from popc.cost.planner.plan import Plan, PlanStep, vertex_of
from popc.cost.planner.problem import (
    PLACED,
    ROWS,
    TURNED,
    ConvProblem,
    OperandLayout,
    matmul_problem,
)
from popc.cost.planner.search import Planner

__all__ = [
    "PLACED",
    "ROWS",
    "TURNED",
    "ConvProblem",
    "GatherPlan",
    "GatherProblem",
    "OperandLayout",
    "Plan",
    "PlanStep",
    "Planner",
    "matmul_problem",
    "plan_gather",
    "plan_scatter",
    "vertex_of",
]
