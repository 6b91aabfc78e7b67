"""Operands for the tests of rewrites, drawn: every rank, broadcasts, extreme constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popc.ir import Graph, Shape, Tensor
from popc_runtime.format import Array, DType
from tests.support.small_graphs import SmallGraph

__all__ = ["FLOATS", "INTEGERS", "Drawing", "extreme_values", "feeds"]

_T = TypeVar("_T")
FLOATS: Final = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)
INTEGERS: Final = (DType.INT8, DType.INT32, DType.INT64, DType.UINT8, DType.UINT32)
_RANKS: Final = 5


def extreme_values(dtype: DType) -> list[float]:
    """Constants that rules look for, and those that break them; limits are those of ``dtype``."""
    storage = dtype.storage
    if dtype is DType.BOOL:
        return [0, 1]
    if not dtype.is_float:
        limits = np.iinfo(storage)
        values = [0, 1, -1, 2, limits.min, limits.max]
        return [value for value in values if limits.min <= value <= limits.max]
    limits_ = np.finfo(storage)
    near = [1 + float(limits_.eps), -1 - float(limits_.eps), 1e-13]
    ends = [
        float(item) for item in (limits_.max, limits_.min, limits_.tiny, limits_.smallest_subnormal)
    ]
    return [0, 1, -1, 2, 0.5, -0.0, np.nan, np.inf, -np.inf, *near, *ends]


def feeds(graph: Graph, seed: int, *, limits: bool = True, extremes: bool = True) -> list[Array]:
    """Values of the inputs: ordinary ones, and extremes, with or without ``limits`` of types."""
    random = np.random.default_rng(seed)
    found = []
    for tensor in graph.inputs:
        dtype, shape = tensor.type.dtype, tensor.type.shape
        usual = random.uniform(0.25, 2, shape) * random.choice([-1, 1], shape)
        if dtype.is_unsigned:
            usual = np.abs(usual)
        values = (usual * (1 if dtype.is_float else 8)).astype(dtype.storage)
        rare = extreme_values(dtype)[: None if limits or not dtype.is_float else 9]
        chosen = np.asarray(random.choice(rare, shape), dtype.storage)
        share = random.choice([0, 0.3]) if extremes else 0
        found.append(np.where(random.random(shape) < share, chosen, values))
    return found


class Drawing:
    """A graph on which a rewrite is to be tried; ``draw`` decides what it looks like."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        self.small = SmallGraph()

    def __call__(self, op_type: str, *inputs: Tensor, **attributes: object) -> Tensor:
        return self.small(op_type, *inputs, **attributes)  # type: ignore[arg-type]

    def of(self, *values: _T) -> _T:
        return self.draw(st.sampled_from(values))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, least: int = 0, most: int = _RANKS, smallest: int = 0) -> Shape:
        """Of any rank; sizes up to 3, rarely 0."""
        sizes = st.sampled_from([1, 1, 2, 2, 3, 3, smallest])
        return tuple(self.draw(st.lists(sizes, min_size=least, max_size=most)))

    def dtype(self, *choice: DType) -> DType:
        return self.of(*(choice or (*FLOATS, *INTEGERS)))

    def input(self, shape: Shape, dtype: DType = DType.FLOAT32) -> Tensor:
        return self.small.input(*shape, dtype=dtype)

    def constant(self, values: object, dtype: DType = DType.FLOAT32) -> Tensor:
        return self.small.constant(np.asarray(values, dtype.storage), dtype)

    def scalar(self, dtype: DType, *values: float, least: int = 0, most: int = _RANKS) -> Tensor:
        """A constant of one element of any rank: one of ``values``, or an extreme."""
        value = (
            self.of(*values, *extreme_values(dtype))
            if dtype.is_float
            else self._whole(dtype, values)
        )
        return self.constant(np.full((1,) * self.number(least, most), value), dtype)

    def _whole(self, dtype: DType, values: Sequence[float]) -> float:
        limits = np.iinfo(dtype.storage)
        fitting = [
            content
            for content in values
            if content == int(content) and limits.min <= content <= limits.max
        ]
        return self.of(*fitting, *extreme_values(dtype))

    def beside(self, shape: Shape) -> Shape:
        """A shape that broadcasts with ``shape``, of the same rank or another."""
        thin = self.below(shape)
        return (1,) * self.number(0, max(0, _RANKS - len(thin))) + thin

    def below(self, shape: Shape) -> Shape:
        """A shape that broadcasts to ``shape``."""
        kept = shape[self.number(0, len(shape)) :]
        return tuple(1 if self.flag() else dim for dim in kept)

    def extremes(self, shape: Shape, dtype: DType = DType.FLOAT32) -> Tensor:
        """A constant with extremes at some places."""
        return self.constant(self.values(shape, dtype), dtype)

    def values(self, shape: Shape, dtype: DType) -> Array:
        random = np.random.default_rng(self.number(0, 99))
        usual = random.uniform(0.25, 2, shape) * (1 if dtype.is_float else 5)
        chosen = np.full(shape, self.of(*extreme_values(dtype)), dtype.storage)
        rare = random.random(shape) < self.of(0.0, 0.0, 0.3, 1.0)
        values: Array = np.where(rare, chosen, usual.astype(dtype.storage))
        return values
