"""Options about the order in which ops run."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Number, Whole
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["Algorithm", "ScheduleOptions", "TieBreaker"]


class TieBreaker(StrEnum):
    """The choice among several ready nodes."""

    GREEDY = "greedy"  # the one that adds the fewest live bytes; among equals as FIFO
    FIFO = "fifo"  # the one that became ready last (the established name is a misnomer)
    RANDOM = "random"  # any, the same on every run


class Algorithm(StrEnum):
    """The way to make an order."""

    CHOOSE_BEST = "choose_best"
    KAHN = "kahn"
    CLUSTERING = "clustering"
    POST_ORDER = "post_order"
    LOOK_AHEAD = "look_ahead"
    SHORTEST_PATH = "shortest_path"


@inheritable
class ScheduleOptions:
    """The settings of the scheduler.  None of these changes results."""

    kahn_tie_breaker: TieBreaker = option(
        Choice(*TieBreaker),
        TieBreaker.GREEDY,
        "Which of several ready ops Kahn's algorithm takes. Greedy takes the one that adds the "
        "least live memory, fifo the one that became ready last (as in PopART, despite its "
        "name), random a pseudo-random one, always the same.",
        popart="kahnTieBreaker",
    )
    maximum_scheduler_lookahead_depth: int = option(
        Whole(low=1, high=100),
        5,
        "Number of ops that look_ahead tries in advance. Time grows quickly with it.",
    )
    maximum_scheduler_search_space_size: int = option(
        Whole(low=1, high=1_000_000),
        64,
        "Number of ops that look_ahead considers before each decision.",
    )
    scheduler_work_limit: int = option(
        Whole(),
        300_000,
        "How much the scheduler searches, in ops that it looks at: a few microseconds each. "
        "Local search is faster, and looks at up to seventy times as many. A limit of work "
        "rather than time makes schedules repeatable. With 0 there is no search.",
    )
    scheduling_algorithm: Algorithm = option(
        Choice(*Algorithm),
        Algorithm.CHOOSE_BEST,
        "How ops are ordered. choose_best tries kahn (greedy and fifo), clustering, post_order "
        "and shortest_path, improves them by local search and an exact search, and "
        "takes the order with the lowest peak of live memory; kahn is PopART's algorithm, "
        "clustering, post_order, look_ahead and shortest_path are named as in TensorFlow.",
    )
    swap_limit_scheduler: int = option(
        Whole(),
        1_000_000_000,
        "Most moves that the local search makes. It improves the orders of kahn and "
        "choose_best; with 0 there is no search. scheduler_work_limit ends it too.",
        popart="swapLimitScheduler",
    )
    time_limit_scheduler: float = option(
        Number(high=1_000_000_000),
        1e9,
        "Seconds after which the scheduler does not begin or continue a search. A limit that "
        "takes effect makes schedules depend on the machine and its load, which is why the "
        "default never does: see scheduler_work_limit.",
        popart="timeLimitScheduler",
    )
    transitive_closure_optimization_threshold: int = option(
        Whole(),
        100_000,
        "Largest number of ops for which links that follow from others are dropped. "
        "Ops that may as well run together are joined in any case.",
        popart="transitiveClosureOptimizationThreshold",
    )
