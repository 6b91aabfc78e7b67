"""The order of execution: which ops run at load time, and in which order all ops run."""

from typing import TYPE_CHECKING

from popc.options import Algorithm, TieBreaker
from popc.schedule.chosen import Candidate
from popc.schedule.footprint import ALIGNMENT, aligned
from popc.schedule.measures import Cost
from popc.schedule.report import PartReport
from popc.schedule.schedule import Schedule, build_schedule
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.schedule.check import check_schedule
    from popc.schedule.compare import compare_algorithms
    from popc.schedule.liveness import Liveness, measure_liveness
    from popc.schedule.text import format_schedule

__all__ = [
    "ALIGNMENT",
    "Algorithm",
    "Candidate",
    "Cost",
    "Liveness",
    "PartReport",
    "Schedule",
    "TieBreaker",
    "aligned",
    "build_schedule",
    "check_schedule",
    "compare_algorithms",
    "format_schedule",
    "measure_liveness",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Liveness": "popc.schedule.liveness",
        "format_schedule": "popc.schedule.text",
        "measure_liveness": "popc.schedule.liveness",
        "check_schedule": "popc.schedule.check",
        "compare_algorithms": "popc.schedule.compare",
    },
)
