"""The order of execution: which ops run at load time, and in which order all ops run."""

from popc.options import Algorithm, TieBreaker
from popc.schedule.check import check_schedule
from popc.schedule.choose import Candidate
from popc.schedule.compare import compare_algorithms
from popc.schedule.footprint import ALIGNMENT, aligned
from popc.schedule.liveness import Liveness, measure_liveness
from popc.schedule.measures import Cost
from popc.schedule.report import PartReport
from popc.schedule.schedule import Schedule, build_schedule
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
