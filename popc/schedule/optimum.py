"""The search for the lowest peak, as far as a limit of work allows.

The problem is simplified, and what is left is searched exactly.  If that takes too long, the range
between what is known to be impossible and what has been found is halved a few times.  A large
problem is searched in parts, between nodes that have a fixed place.  What remains is to improve
small windows of an order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from popc.options import TieBreaker
from popc.schedule.algorithms import kahn_order
from popc.schedule.bound import bound_peak
from popc.schedule.cuts import find_cuts, restrict
from popc.schedule.effort import Effort
from popc.schedule.exact import ExactResult, search_exactly
from popc.schedule.flow import bound_by_cuts
from popc.schedule.measures import measure_steps
from popc.schedule.problem import OrderingProblem
from popc.schedule.simplify import simplify

__all__ = ["find_lowest_peak", "lower_by_windows"]

_MOST_NODES: Final = 3000  # sets of nodes are kept as bits
_FEW_NODES: Final = 500  # with more of them, a search that ends does so soon
_PROBES: Final = 6  # peaks between the proven and the found one that are tried
_WINDOWS: Final = (12, 16, 24, 32, 48, 64)  # nodes in a small part of an order
_WINDOW_WORK: Final = 10_000  # nodes to look at for each small part
_COPIED: Final = 4  # nodes that are measured and copied while one is looked at


def find_lowest_peak(
    problem: OrderingProblem, bound: int, effort: Effort, *, closure_threshold: int
) -> ExactResult:
    """Look for an order whose peak is below ``bound``, the peak of a known order.

    Priorities and ties are not looked at.  ``lower`` of the result is a proven bound; if it is the
    peak of the order found, or ``bound`` and there is none, nothing better exists.
    """
    reduces = len(problem) <= closure_threshold
    smaller = simplify(problem, reduces=reduces, small=_MOST_NODES)
    lower = bound_peak(smaller)
    if lower < bound:
        lower = max(lower, bound_by_cuts(smaller, bound))
    if lower >= bound:
        return ExactResult(None, bound, 0)
    if len(smaller) > _FEW_NODES:
        effort = effort.part(4)
    if len(smaller) <= _MOST_NODES:
        found = _search(smaller, lower, bound, effort)
    else:
        found = _search_regions(smaller, lower, bound, effort)
    if found.order is None:
        return found
    return found._replace(order=tuple(smaller.expand(found.order)))


def _search(problem: OrderingProblem, lower: int, bound: int, effort: Effort) -> ExactResult:
    """Search exactly with half of the work; if that is too little, probe with the other half."""
    found = search_exactly(problem, floor=lower, bound=bound, effort=effort.part(2))
    lower, work, best = found.lower, found.work, found.order
    if best is not None or lower >= bound:
        return found
    low, high = lower, bound
    for _ in range(_PROBES):
        middle = (low + high) // 2
        part = effort.part(2 * _PROBES)
        probe = search_exactly(problem, floor=middle, bound=middle + 1, effort=part)
        work += probe.work
        if probe.order is None:
            low = middle + 1
            if probe.lower > middle:
                lower = max(lower, probe.lower)
        else:
            best = probe.order
            high = max(measure_steps(problem, best))
        if low >= high:
            break
    return ExactResult(best, lower, work)


def _search_regions(
    problem: OrderingProblem, lower: int, bound: int, effort: Effort
) -> ExactResult:
    """Search what lies around the peak between two cuts, then around the next peak, and so on."""
    order = kahn_order(problem, TieBreaker.GREEDY)
    cuts = find_cuts(problem, order)
    work = 0
    while not effort.is_spent(work):
        steps = measure_steps(problem, order)
        peak = max(steps)
        index = bisect_right(cuts, steps.index(peak))
        low = cuts[index - 1] if index else 0
        high = cuts[index] + 1 if index < len(cuts) else len(order)
        if peak <= lower or high - low > _MOST_NODES:
            break
        found = _search_part(problem, order, steps, (low, high), lower, effort.part(4, work))
        work += found.work + len(order) // _COPIED
        lower = max(lower, found.lower)
        if found.order is None:
            break
    better = max(measure_steps(problem, order)) < bound
    return ExactResult(tuple(order) if better else None, min(lower, bound), work)


def _search_part(
    problem: OrderingProblem,
    order: list[int],
    steps: Sequence[int],
    places: tuple[int, int],
    lower: int,
    effort: Effort,
) -> ExactResult:
    """Look for a lower peak between two ``places`` of ``order``, and change it there."""
    low, high = places
    part = restrict(problem, order, steps, low, high)
    peak = max(steps[low:high])
    found = search_exactly(part, floor=lower, bound=peak, effort=effort)
    if found.order is not None:
        inside = order[low:high]
        order[low:high] = [inside[node] for node in found.order]
    return found


def lower_by_windows(
    problem: OrderingProblem, order: Sequence[int], lower: int, effort: Effort
) -> tuple[int, ...]:
    """Lower the peak of ``order`` by searching small windows around it.

    A window of the next size is tried when one does not help, the smallest one again after it has.
    """
    best, work, size = list(order), 0, 0
    steps = measure_steps(problem, best)
    while size < len(_WINDOWS) and not effort.is_spent(work):
        peak = max(steps)
        if peak <= lower:
            break
        place, reach = steps.index(peak), _WINDOWS[size] // 2
        low, high = max(place - reach, 0), min(place + reach, len(best))
        part = Effort(_WINDOW_WORK, effort.is_late)
        found = _search_part(problem, best, steps, (low, high), lower, part)
        work += found.work + len(best) // _COPIED
        if found.order is None:
            size += 1
        else:
            size, steps = 0, measure_steps(problem, best)
    return tuple(best)
