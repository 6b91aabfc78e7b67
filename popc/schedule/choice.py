"""The order of one part: the only one that there is, or the best of those that are compared.

What compares orders is imported where there is a choice: many small models are chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from popc.options import Algorithm, ScheduleOptions
from popc.schedule.chosen import FIRST, Candidate, ChosenOrder
from popc.schedule.measures import measure
from popc.schedule.problem import OrderingProblem

__all__ = ["Chooser"]


class Chooser:
    """Orders problems as ``options`` say; the clock starts when it is made."""

    def __init__(self, options: ScheduleOptions) -> None:
        self._options = options
        self._deadline = perf_counter() + options.time_limit_scheduler

    def order(self, problem: OrderingProblem) -> ChosenOrder:
        """Order the nodes of ``problem``."""
        only = problem.only_order()
        if only is not None:
            return self._without_choice(problem, only)
        from popc.schedule.choose import Contest

        return Contest(self._options, self._deadline).order(problem)

    def _without_choice(self, problem: OrderingProblem, order: Sequence[int]) -> ChosenOrder:
        """The only order that there is."""
        algorithm = self._options.scheduling_algorithm
        name = (FIRST if algorithm is Algorithm.CHOOSE_BEST else algorithm).value
        cost = measure(problem, order)
        found = (Candidate(name, cost),)
        return ChosenOrder(tuple(problem.expand(order)), found, name, cost, 0, cost.peak)
