"""Elementary functions against those of the C library in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, find_library
from popc_runtime.native.library import variants
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


# Opcode, numpy's function, range.
_FUNCTIONS = [
    ("Acos", np.arccos, (-1, 1)),
    ("Acosh", np.arccosh, (1, 30)),
    ("Asin", np.arcsin, (-1, 1)),
    ("Asinh", np.arcsinh, (-30, 30)),
    ("Atan", np.arctan, (-30, 30)),
    ("Atanh", np.arctanh, (-1, 1)),
    ("Cos", np.cos, (-2000, 2000)),
    ("Cosh", np.cosh, (-80, 80)),
    ("Exp", np.exp, (-80, 80)),
    ("Expm1", np.expm1, (-80, 80)),
    ("Log", np.log, (0, 9)),
    ("Log1p", np.log1p, (-1, 9)),
    ("Sin", np.sin, (-2000, 2000)),
    ("Sinh", np.sinh, (-80, 80)),
    ("Tan", np.tan, (-2000, 2000)),
    ("Tanh", np.tanh, (-30, 30)),
]
_SPECIAL = (*(0, -0.0, 1, -1, 1e-40, -1e-10, 1e6, 1e30, -1e38), np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("opcode", "function", "ends"), _FUNCTIONS)
@np.errstate(all="ignore")
def test_units_in_the_last_place(
    variant: str,
    dtype: type,
    opcode: str,
    function: Callable[[Array], Array],
    ends: tuple[float, float],
) -> None:
    """Near zero, between the ends, and of numbers that the C library gets; at any distance."""
    library = find_library(variant)
    assert library is not None
    random = np.random.default_rng(0)
    around = ends[0] + (ends[1] - ends[0]) * random.random(4000)
    small = random.standard_normal(4000) * 10.0 ** random.uniform(-9, 0, 4000)
    x: Array = np.concatenate([around, small, 1 + abs(small), _SPECIAL]).astype(dtype)
    results = native_results(library, opcode, [x], [np.empty_like(x)], {})
    assert results is not None
    (result,) = results
    exact = function(x.astype(np.longdouble))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    rounded: Array = exact.astype(dtype)
    error = abs(result.astype(np.longdouble) - exact)
    usual = np.isfinite(rounded) & (abs(rounded) >= np.finfo(dtype).tiny)
    assert (error[usual] <= 4.5 * np.spacing(abs(rounded[usual]))).all()
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(result[infinite], rounded[infinite])
    apart = native_results(library, opcode, [np.repeat(x, 2)[::2]], [np.empty_like(x)], {})
    assert apart is not None
    assert apart[0].tobytes() == result.tobytes()
