"""The first few of a line, judged by a sort of Python's numbers, one after the other."""

from __future__ import annotations

from math import isnan
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library
from tests.native.bindings import native_results

_LENGTHS: Final = (
    1,
    31,
    33,
    63,
    64,
    65,
    95,
    96,
    97,
    255,
    257,
    511,
    512,
    513,
    1023,
    1025,
    1111,
    3000,
)
_TYPES: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _drawn(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Numbers of which few differ, or all of them, with the ends of the type among them."""
    if dtype.startswith("float"):
        x = random.standard_normal(shape)
        if random.integers(2):
            x = np.round(x)
        x[random.random(shape) < 0.02] = random.choice([np.nan, np.inf, -np.inf, -0.0])
        return x.astype(dtype)
    ends = np.iinfo(dtype)
    if random.integers(2):
        return random.choice(np.array([ends.min, 1, ends.max], dtype), shape, p=[0.02, 0.9, 0.08])
    return random.integers(ends.min, ends.max, shape, dtype, endpoint=True)


def _first(line: list[Any], wanted: int, *, largest: bool) -> list[int]:
    """Their places: what is undefined counts as the largest, and the lower of equal ones first."""

    def order(place: int) -> tuple[Any, ...]:
        value, sign = line[place], -1 if largest else 1
        undefined = isinstance(value, float) and isnan(value)
        return sign * undefined, 0 if undefined else sign * value, place

    return sorted(range(len(line)), key=order)[:wanted]


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("dtype", [*_TYPES, "float32", "float64"])
def test_the_first_few(library: Library, dtype: str, wanted: int, *, largest: bool) -> None:
    random = np.random.default_rng([wanted, largest])
    for length in _LENGTHS:
        if length < wanted:
            continue
        x = _drawn(random, dtype, (3, length))
        attributes = {"axis": 1, "k": wanted, "largest": int(largest)}
        outputs = [np.empty((3, wanted), dtype), np.empty((3, wanted), np.int64)]
        expected = [_first(line, wanted, largest=largest) for line in x.tolist()]
        for threads in (1, 3):
            got = native_results(library, "TopK", [x], outputs, attributes, threads=threads)
            assert got is not None
            assert got[1].tolist() == expected
            assert got[0].tobytes() == np.take_along_axis(x, got[1], 1).tobytes()
        down = [np.empty((wanted, 3), dtype), np.empty((wanted, 3), np.int64)]
        columns = np.ascontiguousarray(x.T)
        got = native_results(library, "TopK", [columns], down, attributes | {"axis": 0})
        assert got is not None
        assert got[1].T.tolist() == expected
