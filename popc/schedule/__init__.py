"""The order of execution: which ops run at load time, and in which order all ops run."""

from popc.schedule.check import check_schedule
from popc.schedule.kahn import TieBreaker
from popc.schedule.liveness import Liveness, measure_liveness
from popc.schedule.schedule import Schedule, build_schedule
from popc.schedule.text import format_schedule

__all__ = [
    "Liveness",
    "Schedule",
    "TieBreaker",
    "build_schedule",
    "check_schedule",
    "format_schedule",
    "measure_liveness",
]
