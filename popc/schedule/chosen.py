"""An order of one part, and those that it was compared with."""

from __future__ import annotations

from typing import Final, NamedTuple

from popc.options import Algorithm
from popc.schedule.measures import Cost
from popc_runtime.ground.frozen import frozen

__all__ = ["FIRST", "Candidate", "ChosenOrder"]

FIRST: Final = Algorithm.KAHN  # of those that are compared


class Candidate(NamedTuple):
    """An order that was looked at: how it was made, and its cost."""

    name: str
    cost: Cost


@frozen
class ChosenOrder:
    """An order and how it was found.

    Attributes:
        order: The numbers of the ops.
        candidates: What was compared.
        chosen: The name of the best candidate.
        cost: Of ``order``, which is that candidate after local search.
        moves: Moves that local search has made.
        lower: No order has a lower peak than this.
    """

    order: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    chosen: str
    cost: Cost
    moves: int
    lower: int
