"""The places of all tensors: views, memory taken over in place, offsets."""

from popc.memory.check import check_plan
from popc.memory.plan import ConstantBlock, MemoryPlan, Placement
from popc.memory.planner import plan_memory
from popc.memory.text import format_plan

__all__ = [
    "ConstantBlock",
    "MemoryPlan",
    "Placement",
    "check_plan",
    "format_plan",
    "plan_memory",
]
