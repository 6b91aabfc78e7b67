"""The places of all tensors: views, memory taken over in place, offsets."""

from typing import TYPE_CHECKING

from popc.memory.plan import ConstantBlock, MemoryPlace, MemoryPlan
from popc.memory.planner import plan_memory
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.memory.check import check_plan
    from popc.memory.text import format_plan

__all__ = [
    "ConstantBlock",
    "MemoryPlace",
    "MemoryPlan",
    "check_plan",
    "format_plan",
    "plan_memory",
]

__getattr__ = lazy_names(
    __name__, {"format_plan": "popc.memory.text", "check_plan": "popc.memory.check"}
)
