"""Common parts of layers."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeAlias

import numpy as np

from popc_runtime.format import Array
from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.value import Value

__all__ = ["Layer", "broadcasts", "scaled"]

# Adds some nodes, and puts what they make into the pool.
Layer: TypeAlias = Callable[[Builder], object]


def scaled(builder: Builder, shape: tuple[int, ...], terms: int, like: Value) -> Array:
    """Weights by which sums of so many terms stay about as large as the terms."""
    return builder.normal(*shape, scale=1 / sqrt(max(terms, 1)), dtype=like.array.dtype)


def broadcasts(a: Value, b: Value) -> bool:
    """True if two tensors can be added."""
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True
