"""The places of all tensors: views, memory taken over in place, offsets."""

from popc.memory.check import check_plan
from popc.memory.plan import ConstantBlock, MemoryPlace, MemoryPlan
from popc.memory.planner import plan_memory
from popc.memory.text import format_plan

__all__ = [
    "ConstantBlock",
    "MemoryPlace",
    "MemoryPlan",
    "check_plan",
    "format_plan",
    "plan_memory",
]
