"""Powers of all types, and sums of several operands.

Powers of integers and sums are those of numpy's kernels, to the bit; powers of floats agree to a
millionth, halves to one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from popc_runtime.native import Library
from tests.native.bindings import native_results, numpy_results

__all__ = ["ARITHMETIC"]

ARITHMETIC: Final = frozenset({"ScaledAdd"})
_UNITS: Final = {DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7, DType.FLOAT32: 2e-6}


def _stored(values: Array, dtype: DType) -> Array:
    if dtype is DType.BFLOAT16:
        return to_bfloat16(values.astype(np.float32))
    return values.astype(dtype.storage)


@np.errstate(all="ignore")
def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array],
    types: Sequence[DType],
    attributes: Mapping[str, Any],
    *,
    constant: Sequence[int] = (),
    tolerance: float = 0.0,
) -> None:
    shape = np.broadcast_shapes(*(operand.shape for operand in inputs))
    out = np.empty(shape, types[-1].storage)
    expected = numpy_results(opcode, inputs, [out], attributes, constant, types)[0]
    for threads in (1, 2):
        results = native_results(
            library, opcode, inputs, [out], attributes, constant, threads, types
        )
        assert results is not None, f"{opcode} has no native form here"
        got, wanted = results[0], expected
        if types[-1] is DType.BFLOAT16:
            got, wanted = from_bfloat16(got), from_bfloat16(wanted)
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


_NUMBERS: Final = tuple(
    dtype for dtype in DType if not dtype.is_float8 and dtype not in (DType.BOOL, DType.UINT64)
)


@pytest.mark.parametrize("exponent", _NUMBERS)
@pytest.mark.parametrize("base", _NUMBERS)
def test_powers(library: Library, base: DType, exponent: DType) -> None:
    random = np.random.default_rng(0)
    values = random.integers(-3, 6, (7, 60)) * (1.0 if base.is_integer else 0.75)
    powers = random.integers(-2, 7, 60)
    if base.is_unsigned:
        values = np.abs(values)
    if exponent.is_unsigned or (base.is_integer and exponent.is_float):
        powers = np.abs(powers)
    inputs = [_stored(values, base), _stored(powers, exponent)]
    unit = _UNITS.get(base, 1e-12 if base.is_float else 0)
    _check(library, "Pow", inputs, [base, exponent, base], {}, tolerance=unit)


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("dtype", [item for item in DType if item.is_float])
def test_constant_powers(library: Library, dtype: DType, power: float) -> None:
    x = _stored(np.abs(np.random.default_rng(0).standard_normal((5, 77))) + 0.1, dtype)
    unit = _UNITS.get(dtype, 1e-12)
    for kind in (dtype, DType.FLOAT32, DType.INT32):
        inputs, types = [x, _stored(np.array(power), kind)], [dtype, kind, dtype]
        _check(library, "Pow", inputs, types, {}, constant=[1], tolerance=unit)


@pytest.mark.parametrize("power", [-(2**31), -3, -2, -1, 0, 1, 2, 3, 4, 7, 30, 31, 33, 2**31 - 1])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_powers_of_integers_wrap_around(
    library: Library, dtype: Any, step: int, count: int, power: int
) -> None:
    x = np.random.default_rng(count).integers(-(2**31), 2**31, count).astype(dtype)
    x[: min(count, 5)] = (0, 1, -1, 2, -2)[: min(count, 5)]
    wide = np.zeros(2 * count, dtype)
    laid = wide[::step][:count]
    laid[...] = x
    for inputs, constant in (
        ([laid, np.array(power, dtype)], (1,)),
        ([laid, np.full(count, power, dtype)], ()),
    ):
        got = native_results(library, "Pow", inputs, [np.empty_like(x)], {}, constant)
        assert got is not None
        bits = 8 * x.itemsize
        assert [each % 2**bits for each in got[0].tolist()] == [
            _power(each, power, bits) for each in x.tolist()
        ]


def _power(base: int, exponent: int, bits: int) -> int:
    """Modulo so many bits; a reciprocal is rounded toward zero, and that of zero is zero."""
    if exponent >= 0:
        return int(pow(base, exponent, 2**bits))
    return {1: 1, -1: int(pow(-1, -exponent, 2**bits))}.get(base, 0)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("dtype", [item for item in DType if item.is_float])
def test_sums_of_operands(library: Library, dtype: DType, count: int) -> None:
    shapes = [(6, 40), (40,), (6, 1), (), (6, 40)]
    random = np.random.default_rng(0)
    inputs = [_stored(random.standard_normal(shape), dtype) for shape in shapes[:count]]
    _check(library, "Sum", inputs, [dtype] * (count + 1), {})


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("dtype", [item for item in DType if item.is_float])
def test_scaled_sums(library: Library, dtype: DType, *, given: bool) -> None:
    random = np.random.default_rng(0)
    inputs = [_stored(random.standard_normal((6, 40)), dtype) for _ in range(2)]
    types = [dtype] * 3
    if given:
        inputs += [_stored(np.array(value), dtype) for value in (0.5, -2.0)]
        types = [dtype] * 5
    _check(library, "ScaledAdd", inputs, types, {"scale0": 0.75, "scale1": -0.3})
