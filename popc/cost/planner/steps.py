"""Steps of candidates, and the work of the busiest tile in them."""

from __future__ import annotations

from popc.cost.formulas.numbers import Count
from popc_runtime.ground.frozen import frozen

__all__ = ["CandidateStep", "Shares"]


@frozen
class Shares:
    """The shares of the busiest tile in one serial step: sizes of its part of each dimension.

    Channels and groups are counted in groups of the method.  ``inputs``, ``weights`` and
    ``partials`` are elements, padding included.
    """

    groups: Count
    batch: Count
    rows: Count
    columns: Count
    in_groups: Count
    out_groups: Count
    kernel_rows: Count
    inputs: Count
    weights: Count
    partials: Count


@frozen
class CandidateStep:
    """`popc.cost.planner.plan.PlanStep` for all candidates.

    ``expected``: what poplin's planner takes ``compute`` and ``exchange`` for when it compares
    plans, if it is something else.
    """

    name: str
    exchange: Count = 0
    compute: Count = 0
    exchanges: Count = 0
    launches: Count = 0
    sources: Count = 0
    expected: Count | None = None
