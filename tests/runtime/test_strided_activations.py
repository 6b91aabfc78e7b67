"""Activations of elements that do not follow each other, in place and apart.

numpy 2.4 with AVX2 has functions that take wrong elements at some distances.
"""

from __future__ import annotations

import numpy as np
import pytest

from popc_runtime.kernels.activation import ACTIVATIONS, activation_calls
from popc_runtime.kernels.core.binding import Scratch
from popc_runtime.kernels.core.negation import negative

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("step", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_steps_between_elements(name: str, dtype: type[np.floating], step: int) -> None:
    attributes = {"scale": 0.1, "low": -8.0, "high": 7.0} if name == "FakeQuantize" else {}
    memory = np.random.default_rng(0).normal(size=(9, step)).astype(dtype)
    x = memory[:, 0].copy()
    expected, apart = np.empty_like(x), np.zeros((9, step), dtype)
    for source, target in ((x, expected), (memory[:, 0], apart[:, 0]), (memory[:, 0],) * 2):
        for call in activation_calls(name, attributes, source, target, Scratch()):
            call()
    np.testing.assert_array_equal(apart[:, 0], expected)
    np.testing.assert_array_equal(memory[:, 0], expected)


@pytest.mark.parametrize("step", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", *INTEGERS])
def test_opposites(dtype: str, step: int) -> None:
    memory = np.arange(9 * step).reshape(9, step).astype(dtype)
    expected = -memory[:, 0].copy()
    apart = np.zeros((9, step), dtype)
    for target in (apart[:, 0], memory[:, 0]):
        negative(memory[:, 0], out=target)
        assert target.tobytes() == expected.tobytes()
