"""Steps of candidates, and the work of the busiest tile in them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from popc.cost.formulas.numbers import Count
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["CandidateStep", "Shares", "taken"]

_Record = TypeVar("_Record")


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


def taken(record: _Record, indices: Array) -> _Record:
    """A record of arrays over candidates, for some of these only; what is no array stays."""
    values = ((field.name, getattr(record, field.name)) for field in fields(record))  # type: ignore[arg-type]
    arrays: dict[str, Any] = {
        name: value[indices]
        for name, value in values
        if isinstance(value, np.ndarray) and value.ndim
    }
    return replace(record, **arrays)  # type: ignore[type-var]
