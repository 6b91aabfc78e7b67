"""Plans for convolutions, products and reductions: how work is split over tiles and time."""

from __future__ import annotations

from popc.cost.planner.gather import GatherPlan, GatherProblem, plan_gather, plan_scatter
from popc.cost.planner.plan import Plan, PlanStep, vertex_of
from popc.cost.planner.pool import PoolPlan, PoolProblem, plan_pool
from popc.cost.planner.problem import (
    PLACED,
    ROWS,
    TRANSPOSED,
    TURNED,
    ConvProblem,
    OperandLayout,
    matmul_problem,
)
from popc.cost.planner.reduction import Dims, ReductionProblem, ReductionStage, plan_reduction
from popc.cost.planner.search import Planner

__all__ = [
    "PLACED",
    "ROWS",
    "TRANSPOSED",
    "TURNED",
    "ConvProblem",
    "Dims",
    "GatherPlan",
    "GatherProblem",
    "OperandLayout",
    "Plan",
    "PlanStep",
    "Planner",
    "PoolPlan",
    "PoolProblem",
    "ReductionProblem",
    "ReductionStage",
    "matmul_problem",
    "plan_gather",
    "plan_pool",
    "plan_reduction",
    "plan_scatter",
    "vertex_of",
]
