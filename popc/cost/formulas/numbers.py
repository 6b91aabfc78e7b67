"""Arithmetic on whole numbers or arrays of them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["BYTES", "VECTOR", "WORKERS", "Count", "ceil_div", "pick", "round_up"]

# A whole number, or an array of them.
Count: TypeAlias = Any

# Worker contexts of a tile; the formulas of the vertices are written for six.
WORKERS = 6

# Of the kinds of elements that vertices exist for: bytes, and how many of them 64 bits hold.
BYTES: Final = {"quarter": 1, "half": 2, "float": 4, "int": 4}
VECTOR: Final = {kind: 8 // size for kind, size in BYTES.items()}


def ceil_div(count: Count, size: Count) -> Count:
    """The number of parts of ``size`` that hold ``count``."""
    return -(-count // size)


def round_up(count: Count, grain: Count) -> Count:
    """The next multiple of ``grain``."""
    return ceil_div(count, grain) * grain


def pick(count: Count, *values: Count) -> Count:
    """``values[count]``, or the last one if ``count`` is larger."""
    if isinstance(count, int | np.integer):
        return values[min(int(count), len(values) - 1)]
    chosen = values[-1]
    for number in range(len(values) - 1):
        chosen = np.where(count == number, values[number], chosen)
    return chosen
