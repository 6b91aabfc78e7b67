"""Elementary functions against those of the C library in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from popc_runtime.native import Library
from tests.native.bindings import native_results


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# Opcode, function, range, largest relative error.  Around e**-87 an exponent is known to 4e-6 only.
_CURVES: list[tuple[str, Callable[[float], float], tuple[float, float], float]] = [
    ("Erf", math.erf, (-5, 5), 3e-7),
    ("Exp", math.exp, (-87, 88.5), 3e-7),
    ("Gelu", lambda x: x * _normal(x), (-12.8, 12.8), 2e-5),
    ("Gelu", lambda x: x * _normal(x), (-5, 12.8), 3e-6),
    ("Log", math.log, (1.5, 1e6), 3e-7),
    ("Sigmoid", _sigmoid, (-86, 86), 5e-7),
    ("Softplus", lambda x: math.log1p(math.exp(x)), (-86, 86), 5e-7),
    ("Tanh", math.tanh, (-9, 9), 5e-7),
]


@pytest.mark.parametrize(("opcode", "function", "ends", "error"), _CURVES)
def test_relative_error(
    library: Library,
    opcode: str,
    function: Callable[[float], float],
    ends: tuple[float, float],
    error: float,
) -> None:
    x = np.linspace(*ends, 20001).astype(np.float32)
    results = native_results(library, opcode, [x], [np.empty_like(x)], {})
    assert results is not None
    exact = np.array([function(float(value)) for value in x])
    np.testing.assert_allclose(results[0], exact, rtol=error, atol=0)
