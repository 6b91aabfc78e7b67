"""Plans for convolutions and matrix products: how their work is split over tiles and time."""

from __future__ import annotations

from popc.cost.planner.gather import GatherPlan, GatherProblem, plan_gather, plan_scatter
from popc.cost.planner.methods import VertexKind
from popc.cost.planner.plan import Plan, PlanStep
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
    "VertexKind",
    "matmul_problem",
    "plan_gather",
    "plan_scatter",
]
