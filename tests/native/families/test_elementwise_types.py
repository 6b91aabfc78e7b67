"""Maps and casts of all element types: as numpy's kernels, to the bit but for the functions below.

Functions that are not a single rounding (sine, powers, ...) agree to four units in the last place
of the type that they are computed in, which for float16 and bfloat16 is float32, and to one unit of
the type that they are stored in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, prepare
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from popc_runtime.native import Library, NativeProgram
from tests.native.bindings import bound, encode, native_results, numpy_results

_TYPES: Final = tuple(dtype for dtype in DType if not dtype.is_float8)
_INTEGERS: Final = tuple(dtype for dtype in DType if dtype.value.lstrip("u").startswith("int"))
_FLOATS: Final = tuple(dtype for dtype in DType if dtype.is_float)
_EXACT_BINARY: Final = ("Add", "Max", "Min", "Mul", "Sub")
_COMPARISONS: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_BITWISE: Final = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
_EXACT_UNARY: Final = ("Abs", "Ceil", "Floor", "IsInf", "IsNaN", "Neg", "Round", "Sign", "Sqrt")
_FUNCTIONS: Final = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Exp", "Expm1", "Log"),
    *("Log1p", "Sin", "Sinh", "Tan"),
)
_ACTIVATIONS: Final[dict[str, dict[str, Any]]] = {
    "Celu": {"alpha": 1.5},
    "Clip": {"min": -0.5, "max": 0.75},
    "Elu": {"alpha": 1.5},
    "Erf": {},
    "FakeQuantize": {"scale": 0.125, "low": -5.0, "high": 7.0},
    "Gelu": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.1},
    "Mish": {},
    "Reciprocal": {},
    "Relu": {},
    "Selu": {},
    "Shrink": {"bias": 0.25, "lambd": 0.75},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Square": {},
    "Swish": {"alpha": 1.2},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.75},
}
# The opcodes that are tested here.
TYPED: Final = frozenset(
    {
        *_EXACT_BINARY,
        *_COMPARISONS,
        *_BITWISE,
        *_EXACT_UNARY,
        *_FUNCTIONS,
        *_ACTIVATIONS,
        *("Atan2", "BitShift", "BitwiseNot", "Cast", "Div", "Mod", "Pow", "Where"),
    }
)
_SPECIAL: Final = (0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65520.0, -65519.0, 6e-8, 3e-8, 1e-7)


def _values(dtype: DType, count: int, seed: int, spread: float = 3.0) -> Array:
    """Numbers of all sizes that integers have; special ones among floats."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        values = random.standard_normal(count) * spread
        values[: len(_SPECIAL)] = _SPECIAL
        return _stored(values, dtype)
    info = np.iinfo(dtype.storage)
    values = random.integers(info.min, info.max, count, dtype.storage, endpoint=True)
    values[1::3] %= 5
    values[:4] = (0, 1, info.min, info.max)
    return values


def _stored(values: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        if dtype is DType.BFLOAT16:
            return to_bfloat16(values.astype(np.float32))
        return values.astype(dtype.storage)


def _numbers(values: Array, dtype: DType) -> Array:
    return from_bfloat16(values) if dtype is DType.BFLOAT16 else values


def _both(
    library: Library,
    opcode: str,
    inputs: Sequence[Array],
    types: Sequence[DType],
    **attributes: Any,
) -> tuple[Array, Array]:
    """Results of the native kernel and of numpy; ``types``: those of the inputs, of the result."""
    shape = np.broadcast_shapes(*(operand.shape for operand in inputs))
    out = np.empty(shape, types[-1].storage)
    expected = numpy_results(opcode, inputs, [out], attributes, dtypes=types)
    for threads in (1, 2):
        got = native_results(library, opcode, inputs, [out], attributes, (), threads, dtypes=types)
        assert got is not None, opcode
    assert got is not None
    return got[0], expected[0]


def _assert_same(got: Array, expected: Array, dtype: DType) -> None:
    np.testing.assert_array_equal(_numbers(got, dtype), _numbers(expected, dtype))


@pytest.mark.parametrize("target", _TYPES)
@pytest.mark.parametrize("source", _TYPES)
@pytest.mark.parametrize("spread", [1.0, 100.0, 1e5, 1e12, 1e25])
def test_casts(library: Library, source: DType, target: DType, spread: float) -> None:
    if source is target:
        pytest.skip("a move")
    for layout in (slice(None), slice(None, None, -3)):
        x = _values(source, 1537, 1, spread)[layout]
        got, expected = _both(library, "Cast", [x], [source, target])
        known = _has_one_result(x, source, target)
        _assert_same(got[known], expected[known], target)


def _has_one_result(x: Array, source: DType, target: DType) -> Array:
    """False where results of numpy depend on strides: beyond the ends of uint32."""
    if target is not DType.UINT32 or not source.is_float:
        return np.ones(x.shape, bool)
    values = _numbers(x, source).astype(np.float64)
    return (values > -(2.0**31)) & (values < 2.0**32)


def test_float64_is_rounded_to_float16_once(library: Library) -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40, 2.0**-25 + 2.0**-60, 1e300])
    got, expected = _both(library, "Cast", [x], [DType.FLOAT64, DType.FLOAT16])
    _assert_same(got, expected, DType.FLOAT16)


@pytest.mark.parametrize("dtype", [*_INTEGERS, *_FLOATS])
@pytest.mark.parametrize("opcode", [*_EXACT_BINARY, *_COMPARISONS, "Div"])
def test_arithmetic(library: Library, opcode: str, dtype: DType) -> None:
    result = DType.BOOL if opcode in _COMPARISONS else dtype
    x, y = _values(dtype, 1200, 1), _values(dtype, 1200, 2)
    for left, right in ((x, y), (x.reshape(2, 600), y[:1]), (x.reshape(3, 400).T, y[:3])):
        got, expected = _both(library, opcode, [left, right], [dtype, dtype, result])
        _assert_same(got, expected, result)


@pytest.mark.parametrize("dtype", _INTEGERS)
def test_integers(library: Library, dtype: DType) -> None:
    x, y = _values(dtype, 1200, 1), _values(dtype, 1200, 2)
    for opcode in _BITWISE:
        _assert_same(*_both(library, opcode, [x, y], [dtype] * 3), dtype)
    for fmod in (0, 1):
        _assert_same(*_both(library, "Mod", [x, y], [dtype] * 3, fmod=fmod), dtype)
    for opcode in ("Abs", "BitwiseNot", "Neg", "Sign"):
        _assert_same(*_both(library, opcode, [x], [dtype] * 2), dtype)
    if dtype.is_signed:
        return
    for direction in ("LEFT", "RIGHT"):
        shift = (np.arange(1200) % 70).astype(dtype.storage)
        _assert_same(
            *_both(library, "BitShift", [x, shift], [dtype] * 3, direction=direction), dtype
        )


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("opcode", _EXACT_UNARY)
def test_exact_functions(library: Library, opcode: str, dtype: DType) -> None:
    result = DType.BOOL if opcode.startswith("Is") else dtype
    _assert_same(*_both(library, opcode, [_values(dtype, 1200, 1)], [dtype, result]), result)


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("opcode", _FUNCTIONS)
def test_functions(library: Library, opcode: str, dtype: DType) -> None:
    got, expected = _both(library, opcode, [_values(dtype, 1200, 1)], [dtype, dtype])
    _assert_close(got, expected, dtype)


@pytest.mark.parametrize("dtype", _FLOATS)
def test_modulo_and_powers(library: Library, dtype: DType) -> None:
    x, y = _values(dtype, 1200, 1), _values(dtype, 1200, 2)
    for fmod in (0, 1):
        _assert_close(*_both(library, "Mod", [x, y], [dtype] * 3, fmod=fmod), dtype)
    for opcode in ("Atan2", "Pow"):
        _assert_close(*_both(library, opcode, [x, y], [dtype] * 3), dtype)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("opcode", _ACTIVATIONS)
def test_activations_of_halves(library: Library, opcode: str, dtype: DType) -> None:
    x = _values(dtype, 1200, 1)
    got, expected = _both(library, opcode, [x], [dtype] * 2, **_ACTIVATIONS[opcode])
    _assert_close(got, expected, dtype, 1e-6)


@pytest.mark.parametrize("dtype", DType)
def test_choices(library: Library, dtype: DType) -> None:
    x, y = _values(dtype, 1200, 1), _values(dtype, 1200, 2)
    types = [DType.BOOL, dtype, dtype, dtype]
    got, expected = _both(library, "Where", [_values(DType.BOOL, 1200, 3), x, y], types)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("opcode", ["Add", "Div", "Mul"])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.UINT64])
def test_results_in_place_of_operands(library: Library, opcode: str, dtype: DType) -> None:
    x, y = _values(dtype, 3000, 1), _values(dtype, 3000, 2)
    _, expected = _both(library, opcode, [x, y], [dtype] * 3)
    binding = bound([x, y], [x], {}, (), [dtype] * 3)
    record = encode(opcode, binding, library.numbers)
    assert record is not None
    NativeProgram(library, [record], binding, 2).run()
    _assert_same(x, expected, dtype)


_ROUNDINGS: Final[tuple[dict[str, Any], ...]] = (
    {"rounding": "stochastic"},
    {"overflow": "nan"},
    {"overflow": "largest"},
    {"rounding": "stochastic", "overflow": "largest"},
    {"rounding": "stochastic", "overflow": "nan"},
)


@pytest.mark.parametrize("attributes", _ROUNDINGS)
@pytest.mark.parametrize("count", [11, 1200, 60_001])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_other_roundings(
    library: Library, dtype: DType, count: int, attributes: dict[str, Any]
) -> None:
    """With the same random bits as numpy's kernels, also where a sequence of bits goes on."""
    x, y = _values(dtype, max(count, 20), 1, 1e4)[:count], _values(dtype, max(count, 20), 2)[:count]
    got, expected = _both(library, "Mul", [x, y], [dtype] * 3, **attributes)
    _assert_same(got, expected, dtype)
    for spread in (1e-6, 1.0, 1e5):
        wide = _values(DType.FLOAT32, max(count, 20), 3, spread)[:count]
        got, expected = _both(library, "Cast", [wide], [DType.FLOAT32, dtype], **attributes)
        _assert_same(got, expected, dtype)


@np.errstate(all="ignore")
def test_random_bits_go_on_and_start_again(library: Library) -> None:
    attributes, types = {"rounding": "stochastic"}, [DType.FLOAT32, DType.FLOAT16]
    x = _values(DType.FLOAT32, 1001, 3)
    natively = bound([x], [np.empty(1001, np.float16)], attributes, (), types)
    record = encode("Cast", natively, library.numbers)
    assert record is not None
    program = NativeProgram(library, [record], natively, 2)
    by_numpy = bound([x], [np.empty(1001, np.float16)], attributes, (), types)
    calls = prepare(KERNELS["Cast"], by_numpy)
    for seed in (None, None, 5, None):
        if seed is not None:
            natively.random.seed(seed)
            by_numpy.random.seed(seed)
        program.run()
        for call in calls:
            call()
        # Each goes on where it was when the other's state was saved.
        natively.random.restore(by_numpy.random.save())
        assert natively.output().tobytes() == by_numpy.output().tobytes()


def _assert_close(got: Array, expected: Array, dtype: DType, least: float = 0.0) -> None:
    units = {DType.FLOAT64: 2.0**-50, DType.FLOAT32: 2.0**-21, DType.FLOAT16: 2.0**-10}
    smallest = {DType.FLOAT16: 2.0**-24}.get(dtype, 1e-30 if dtype is DType.FLOAT64 else 1e-12)
    np.testing.assert_allclose(
        _numbers(got, dtype).astype(np.float64),
        _numbers(expected, dtype).astype(np.float64),
        rtol=units.get(dtype, 2.0**-7),
        atol=max(smallest, least),
    )
