"""Orders of one part: candidates are made, compared, and the best one is improved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from popc.options import Algorithm, ScheduleOptions, TieBreaker
from popc.schedule.algorithms import (
    clustering_order,
    kahn_order,
    look_ahead_order,
    post_order,
    shortest_path_order,
)
from popc.schedule.bound import bound_peak
from popc.schedule.chosen import FIRST, Candidate, ChosenOrder
from popc.schedule.effort import Effort
from popc.schedule.levels import without_levels
from popc.schedule.measures import Cost, measure
from popc.schedule.optimum import find_lowest_peak, lower_by_windows
from popc.schedule.problem import OrderingProblem
from popc.schedule.shift import descend

__all__ = ["Contest"]

# Local search looks at nodes so many times as fast as the exact search, and at so many of them for
# each node of the problem.
_SPEED: Final = 70
_WORK_PER_NODE: Final = 30_000
_FINALISTS: Final = 2  # candidates that local search takes a second, longer look at
_IDLE: Final = 12  # the last look leaves a window after such a part of its work without a move


class Contest:
    """Orders problems as ``options`` say, until ``deadline``."""

    def __init__(self, options: ScheduleOptions, deadline: float) -> None:
        self._options = options
        self._algorithm = options.scheduling_algorithm
        self._tie_breaker = options.kahn_tie_breaker
        self._deadline = deadline

    def order(self, problem: OrderingProblem) -> ChosenOrder:
        """Order the nodes of ``problem``."""
        if self._algorithm is Algorithm.CHOOSE_BEST:
            return self._best(problem)
        order = self.make(problem, self._algorithm)
        found = _Found(self._algorithm.value, order, measure(problem, order))
        improved = self._algorithm is Algorithm.KAHN  # the others are what their name says
        work = self._descent_work(problem) if improved else 0
        return self._finish(problem, [found], bound_peak(problem), work)

    def make(self, problem: OrderingProblem, algorithm: Algorithm) -> Sequence[int]:
        """The order that one algorithm makes by itself."""
        options = self._options
        makers: dict[Algorithm, Callable[[], Sequence[int]]] = {
            Algorithm.KAHN: lambda: kahn_order(problem, self._tie_breaker),
            Algorithm.CLUSTERING: lambda: clustering_order(problem),
            Algorithm.POST_ORDER: lambda: post_order(problem),
            Algorithm.SHORTEST_PATH: lambda: shortest_path_order(problem),
            Algorithm.LOOK_AHEAD: lambda: look_ahead_order(
                problem,
                options.maximum_scheduler_lookahead_depth,
                options.maximum_scheduler_search_space_size,
            ),
        }
        return makers[algorithm]()

    def _best(self, problem: OrderingProblem) -> ChosenOrder:
        """The best of all candidates; some are only made if they could be of use."""
        found = [self._candidate(problem, algorithm) for algorithm in _QUICK]
        found += [self._kahn(problem, breaker) for breaker in self._other_breakers()]
        peak = min(candidate.cost.peak for candidate in found)
        if self._options.scheduler_work_limit and peak > bound_peak(problem):
            found += self._descents(problem, found)
            peak = min(candidate.cost.peak for candidate in found)
        lower, order = self._search(problem, peak)
        if order is not None:
            found.append(_Found(_EXACT, order, measure(problem, order)))
            peak = min(peak, found[-1].cost.peak)
        if peak > lower and self._options.scheduler_work_limit and not problem.has_levels:
            found.append(self._windows(problem, found, lower))
        return self._finish(problem, found, lower, self._descent_work(problem) // 3)

    def _other_breakers(self) -> list[TieBreaker]:
        """Ways in which Kahn's algorithm may choose that make sense, and are not the one wanted."""
        return [b for b in (TieBreaker.GREEDY, TieBreaker.FIFO) if b is not self._tie_breaker]

    def _descents(self, problem: OrderingProblem, found: Sequence[_Found]) -> Iterator[_Found]:
        """The candidates, improved by local search: all of them if there is work enough for that.

        Local search lowers the sum, whatever becomes of the peak on the way: an order that looks
        bad may be close to one that is better than all others.  So all are looked at in small
        windows, those with the lowest sum first, and then the best of these in wide ones.
        """
        work = self._descent_work(problem) // 3
        starts = {tuple(start.order): start for start in reversed(found)}
        queue = sorted(starts.values(), key=lambda start: (*start.cost[:2], start.cost.total))
        first: list[_Found] = []
        left = work
        for start in queue:
            if left > 0:
                shifted = self._shift(problem, start, left, is_first_look=True)
                left -= shifted.work
                first.append(shifted)
                if shifted.order != tuple(start.order):
                    yield shifted
        left = work
        for start in sorted(first, key=lambda start: start.cost)[:_FINALISTS]:
            if left > 0:
                shifted = self._shift(problem, start, left)
                left -= shifted.work
                if shifted.order != start.order:
                    yield shifted

    def _shift(
        self, problem: OrderingProblem, start: _Found, work: int, *, is_first_look: bool = False
    ) -> _Found:
        """A candidate after local search with so much work."""
        shifted = descend(
            problem,
            start.order,
            Effort(work, self._is_late),
            moves=self._options.swap_limit_scheduler,
            keeps_peak=False,
            is_first_look=is_first_look,
            looked=start.looked,
        )
        name = start.name.removesuffix(_SHIFTED) + _SHIFTED
        cost = measure(problem, shifted.order)
        facts = (shifted.work, shifted.is_settled, shifted.looked)
        return _Found(name, shifted.order, cost, *facts)

    def _descent_work(self, problem: OrderingProblem) -> int:
        """The work that local search may do in all."""
        return min(_SPEED * self._options.scheduler_work_limit, _WORK_PER_NODE * len(problem))

    def _windows(self, problem: OrderingProblem, found: Sequence[_Found], lower: int) -> _Found:
        """The best candidate, with small parts of it searched exactly."""
        best = min(found, key=lambda candidate: candidate.cost)
        effort = Effort(self._options.scheduler_work_limit // 4, self._is_late)
        order = lower_by_windows(problem, best.order, lower, effort)
        return _Found("windows", order, measure(problem, order), looked=best.looked)

    def _candidate(self, problem: OrderingProblem, algorithm: Algorithm) -> _Found:
        order = self.make(problem, algorithm)
        return _Found(algorithm.value, order, measure(problem, order))

    def _kahn(self, problem: OrderingProblem, tie_breaker: TieBreaker) -> _Found:
        order = kahn_order(problem, tie_breaker)
        return _Found(f"kahn {tie_breaker}", order, measure(problem, order))

    def _search(self, problem: OrderingProblem, peak: int) -> tuple[int, Sequence[int] | None]:
        """A bound of the peak, and an order with a peak below ``peak`` if there is one.

        If priorities forbid orders, the bound holds for all orders nevertheless.
        """
        options = self._options
        bound = bound_peak(problem)
        if not options.scheduler_work_limit or self._is_late():
            return bound, None
        if bound >= peak and not problem.has_levels:
            return bound, None
        searched = without_levels(problem) if problem.has_levels else problem
        effort = Effort(options.scheduler_work_limit, self._is_late)
        threshold = options.transitive_closure_optimization_threshold
        found = find_lowest_peak(searched, peak, effort, closure_threshold=threshold)
        order = None if found.order is None else problem.with_barriers(found.order)
        return bound if problem.has_levels else max(bound, found.lower), order

    def _finish(
        self, problem: OrderingProblem, found: list[_Found], lower: int, work: int
    ) -> ChosenOrder:
        """Choose the first of the best, and improve it."""
        best = min(found, key=lambda candidate: candidate.cost)
        work = 0 if best.is_settled else work
        effort, moves = Effort(work, self._is_late), self._options.swap_limit_scheduler
        shifted = descend(
            problem,
            best.order,
            effort,
            moves=moves,
            keeps_peak=True,
            looked=best.looked,
            idle=work // _IDLE,
        )
        return ChosenOrder(
            tuple(problem.expand(shifted.order)),
            tuple(Candidate(candidate.name, candidate.cost) for candidate in found),
            best.name,
            measure(problem, shifted.order),
            shifted.moves,
            lower,
        )

    def _is_late(self) -> bool:
        return perf_counter() > self._deadline


class _Found(NamedTuple):
    """A candidate; the work that it took, and how far local search has come with it."""

    name: str
    order: Sequence[int]
    cost: Cost
    work: int = 0
    is_settled: bool = False
    looked: int = 0


_SHIFTED: Final = ", shifted"
_EXACT: Final = "exact"
_QUICK: Final = (
    FIRST,
    Algorithm.CLUSTERING,
    Algorithm.POST_ORDER,
    Algorithm.SHORTEST_PATH,
)
