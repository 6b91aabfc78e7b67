"""The values of anchors, as a program gives them one by one, in the order in which PopART does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Take", "each_of_batch", "numbered"]

_Array: TypeAlias = np.ndarray[Any, Any]
Take: TypeAlias = "Callable[[_Array], None]"


def numbered(take: Take, picked: Callable[[int], bool]) -> Take:
    """Hands those values on whose numbers within a step are picked."""
    numbers = itertools.count()

    def taken(value: _Array) -> None:
        if picked(next(numbers)):
            take(value)

    return taken


def each_of_batch(take: Take, count: int, replicas: int, before: Sequence[_Array] | None) -> Take:
    """Hands the values of a batch on ``count`` times, once for each of its micro-batches.

    ``before`` are the values of a variable before the step: micro-batches see a variable as it is
    until the batch has updated it.  Of what is computed once for a batch there are none; then all
    see what the batch has made.
    """
    earlier = before
    values: list[_Array] = []

    def taken(value: _Array) -> None:
        nonlocal earlier
        values.append(np.array(value))
        if len(values) < replicas:
            return
        for shown in list(values if earlier is None else earlier) * count:
            take(shown)
        earlier = None if earlier is None else list(values)
        values.clear()

    return taken
