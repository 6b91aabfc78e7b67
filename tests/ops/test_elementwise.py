"""Arithmetic, comparison, logic: values, dtypes, broadcasting, old opsets, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops import OPS
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import assert_matches_onnxruntime, epsilon, run_ir, run_op

_RNG = np.random.default_rng(7)
_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

# ONNX name -> (the function in float64, lowest and highest argument)
_UNARY: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "Abs": (np.abs, -5, 5),
    "Acos": (np.arccos, -1, 1),
    "Acosh": (np.arccosh, 1, 9),
    "Asin": (np.arcsin, -1, 1),
    "Asinh": (np.arcsinh, -9, 9),
    "Atan": (np.arctan, -9, 9),
    "Atanh": (np.arctanh, -0.9, 0.9),
    "Ceil": (np.ceil, -5, 5),
    "Cos": (np.cos, -9, 9),
    "Cosh": (np.cosh, -4, 4),
    "Exp": (np.exp, -8, 8),
    "Floor": (np.floor, -5, 5),
    "Log": (np.log, 0.01, 9),
    "Neg": (np.negative, -5, 5),
    "Reciprocal": (np.reciprocal, 0.1, 9),
    "Round": (np.rint, -5, 5),
    "Sign": (np.sign, -1, 1),
    "Sin": (np.sin, -9, 9),
    "Sinh": (np.sinh, -4, 4),
    "Sqrt": (np.sqrt, 0, 9),
    "Tan": (np.tan, -1, 1),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", _UNARY)
def test_unary(name: str, dtype: Any) -> None:
    function, low, high = _UNARY[name]
    step = epsilon(dtype)
    x = _RNG.uniform(low, high, (3, 5)).astype(dtype)
    (actual,) = run_op(name, [x])
    expected = function(x.astype(np.float64))
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=4 * step, atol=1e-6)


def test_round_halves_to_even() -> None:
    (actual,) = run_op("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)])
    np.testing.assert_array_equal(actual, [-2, -2, 0, 0, 2, 2])


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Max", "Min", "Mod", "Div", "Equal", "Less"])
def test_integers(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    low = max(info.min + 1, -50)
    a = _RNG.integers(low, 50, (4, 6)).astype(dtype)
    b = _RNG.integers(low, 50, (6,)).astype(dtype)
    b[b == 0] = 3
    (actual,) = run_op(name, [a, b])
    wide_a, wide_b = a.astype(object), b.astype(object)
    functions: dict[str, Callable[[], Array]] = {
        "Add": lambda: wide_a + wide_b,
        "Sub": lambda: wide_a - wide_b,
        "Mul": lambda: wide_a * wide_b,
        "Max": lambda: np.maximum(wide_a, wide_b),
        "Min": lambda: np.minimum(wide_a, wide_b),
        "Mod": lambda: wide_a % wide_b,
        "Div": lambda: np.abs(wide_a) // np.abs(wide_b) * np.sign(wide_a) * np.sign(wide_b),
        "Equal": lambda: wide_a == wide_b,
        "Less": lambda: wide_a < wide_b,
    }
    wrapped = np.vectorize(lambda value: int(value) % 2**info.bits, otypes=[object])
    np.testing.assert_array_equal(wrapped(actual), wrapped(functions[name]()))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_division_at_the_ends_of_the_range(dtype: str) -> None:
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.min + 1, -1, 0, 1, info.max - 1, info.max], dtype)
    divisors = np.array([[info.min], [-7], [2], [3], [info.max]], dtype)
    (actual,) = run_op("Div", [ends, divisors])
    for (row, column), value in np.ndenumerate(actual):
        p, q = int(ends[column]), int(divisors[row, 0])
        assert value == abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


def test_mod_of_floats_and_the_sign_of_fmod() -> None:
    a = np.array([-7.5, 7.5, -7, 7], np.float32)
    b = np.array([2, -2, 3, -3], np.float32)
    assert_matches_onnxruntime("Mod", [a, b], {"fmod": 1})
    integers = [a.astype(np.int32), b.astype(np.int32)]
    assert_matches_onnxruntime("Mod", integers, {"fmod": 1})
    assert_matches_onnxruntime("Mod", integers, {"fmod": 0})


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 1.0, 2.0, 3.0, 0.5, 2.5])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_power_with_a_known_exponent(exponent: float, dtype: Any) -> None:
    step = epsilon(dtype)
    x = np.array([0.25, 1, 1.5, 2], dtype)
    (actual,) = run_op("Pow", [x, np.array(exponent, np.float32)], constants={1})
    np.testing.assert_allclose(
        actual.astype(np.float64), x.astype(np.float64) ** exponent, rtol=4 * step
    )


@pytest.mark.parametrize("base", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("exponent", ["float32", "float64", "int32", "int64"])
def test_power_of_mixed_types(base: str, exponent: str) -> None:
    x = np.array([[1], [2], [3]], base)
    assert_matches_onnxruntime("Pow", [x, np.array([0, 1, 2, 3, 9], exponent)])


def test_power_of_integers_wraps_and_takes_negative_exponents() -> None:
    x = np.array([1, -1, 2, 0, 3], np.int32)
    (actual,) = run_op("Pow", [x, np.array([-3, -3, -1, 2, 21], np.int64)])
    np.testing.assert_array_equal(actual, np.array([1, -1, 0, 0, 3**21 % 2**32], np.int32))


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(name: str, count: int) -> None:
    shapes = [(3, 4), (4,), (3, 1), ()]
    operands = [_RNG.normal(size=shape).astype(np.float32) for shape in shapes[:count]]
    assert_matches_onnxruntime(name, operands)


@pytest.mark.parametrize("name", ["Max", "Min"])
def test_max_and_min_pass_nan_on(name: str) -> None:
    a = np.array([np.nan, 1, np.nan], np.float16)
    (actual,) = run_op(name, [a, np.array([1, np.nan, np.nan], np.float16)])
    assert np.isnan(actual).all()


@pytest.mark.parametrize("name", ["And", "Or", "Xor", "Equal"])
def test_logic(name: str) -> None:
    a, b = np.array([[False], [True]]), np.array([False, True])
    assert_matches_onnxruntime(name, [a, b])


@pytest.mark.parametrize("name", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_comparisons(name: str, dtype: str) -> None:
    a = _RNG.integers(-2, 3, (4, 5)).astype(dtype)
    assert_matches_onnxruntime(name, [a, _RNG.integers(-2, 3, (4, 1)).astype(dtype)])


def test_comparison_of_bfloat16() -> None:
    a = np.array([1, 2, 3], ml_dtypes.bfloat16)
    (actual,) = run_op("Less", [a, np.array(2, ml_dtypes.bfloat16)])
    np.testing.assert_array_equal(actual, [True, False, False])


@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", _INTEGERS)
def test_bitwise(name: str, dtype: str) -> None:
    a, b = (_RNG.integers(0, 127, (3, 4)).astype(dtype) for _ in range(2))
    assert_matches_onnxruntime(name, [a, b])
    np.testing.assert_array_equal(run_op("BitwiseNot", [a])[0], ~a)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(dtype: str, direction: str) -> None:
    a = np.array([1, 17, 200], dtype)
    (actual,) = run_op("BitShift", [a, np.array([1, 3, 7], dtype)], {"direction": direction})
    wide = [1 << 1, 17 << 3, 200 << 7] if direction == "LEFT" else [0, 2, 1]
    np.testing.assert_array_equal(actual, np.array(wide).astype(dtype))


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("negative", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinity(positive: int, negative: int, dtype: Any) -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], dtype)
    (actual,) = run_op("IsInf", [x], {"detect_positive": positive, "detect_negative": negative})
    np.testing.assert_array_equal(actual, [False, bool(positive), bool(negative), False])
    np.testing.assert_array_equal(run_op("IsNaN", [x])[0], np.isnan(x))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "int64"])
@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3), (2, 3)), ((3,), (), (2, 1)), ((2, 1), (3,), ()), ((0, 3), (3,), ())]
)
def test_where(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    condition = _RNG.random(shapes[0]) < 0.5
    x, y = (_RNG.integers(0, 100, shape).astype(dtype) for shape in shapes[1:])
    (actual,) = run_op("Where", [condition, x, y])
    expected = np.where(condition, x, y)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_where_copies_the_bits() -> None:
    x = np.array([np.nan, np.inf, -0.0], ml_dtypes.bfloat16)
    (actual,) = run_op("Where", [np.array([True, False, True]), x, np.ones(3, ml_dtypes.bfloat16)])
    np.testing.assert_array_equal(actual, [np.nan, 1, 0])
    assert np.signbit(actual[2])


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [((3, 4), {"axis": 1}), ((4, 5), {}), ((2,), {"axis": 0}), ((2, 3, 4, 5), {}), ((), {})],
)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_broadcasting_before_opset_7(
    name: str, shape: tuple[int, ...], attributes: dict[str, int]
) -> None:
    a = _RNG.uniform(1, 2, (2, 3, 4, 5)).astype(np.float32)
    b = _RNG.uniform(1, 2, shape).astype(np.float32)
    (actual,) = run_op(name, [a, b], {"broadcast": 1, **attributes}, opset=6)
    aligned = b.reshape(shape + (1,) * (4 - attributes.get("axis", 4 - len(shape)) - len(shape)))
    operations = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    expected = operations.get(name, np.power)(a, aligned)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_strided_operands() -> None:
    x = _RNG.normal(size=(6, 5, 4)).astype(np.float32)
    views = [x.T, x[::2, ::-1], x[:, 1:3, 2], np.broadcast_to(x[0, 0], (7, 3, 4))]
    for view in views:
        np.testing.assert_array_equal(run_ir("Mul", [view, view], {})[0], view * view)
        np.testing.assert_array_equal(run_ir("Floor", [view], {})[0], np.floor(view))
        chosen = run_ir("Where", [view > 0, view, np.zeros(1, np.float32)], {})[0]
        np.testing.assert_array_equal(chosen, np.where(view > 0, view, 0))


@pytest.mark.parametrize("shape", [(50, 40, 3), (7, 50000, 3), (4000, 2), (2, 5, 1, 3)])
@pytest.mark.parametrize("rank", [1, 2])
def test_short_constant_rows(shape: tuple[int, ...], rank: int) -> None:
    x = _RNG.normal(size=shape).astype(np.float32)
    bias = _RNG.normal(size=shape[-rank:]).astype(np.float32)
    (actual,) = run_op("Sub", [x, bias], constants={1})
    np.testing.assert_array_equal(actual, x - bias)
    (actual,) = run_op("Sub", [bias, x], constants={0})
    np.testing.assert_array_equal(actual, bias - x)


def _in_place_cases() -> list[tuple[str, int]]:
    return [
        (name, index)
        for name, spec in OPS.items()
        if spec.elementwise and name in {*_UNARY, "Add", "Div", "Max", "Pow", "Where"}
        for index in spec.inplace
    ]


@pytest.mark.parametrize(("name", "index"), _in_place_cases())
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32])
def test_in_place(name: str, index: int, dtype: DType) -> None:
    shape = (3, 20000)
    arity = {"Where": 3, "Add": 2, "Div": 2, "Max": 2, "Pow": 2}.get(name, 1)
    operands = [_RNG.uniform(0.1, 0.9, shape).astype(dtype.storage) for _ in range(arity)]
    if name == "Where":
        operands[0] = operands[0] > 0.5
    expected = run_ir(name, operands, {})[0]
    binding = Binding(
        inputs=tuple(operands),
        outputs=(operands[index],),
        input_dtypes=tuple(DType.of(array.dtype) for array in operands),
        output_dtypes=(dtype,),
        attributes={},
        constant=(False,) * arity,
        scratch=Scratch(),
        random=RandomState(),
    )
    with np.errstate(all="ignore"):
        for call in prepare(KERNELS[name], binding):
            call()
    np.testing.assert_array_equal(operands[index], expected)


def _type(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("Add", [_type(DType.FLOAT32, 2), _type(DType.FLOAT64, 2)], "one element type"),
        ("Add", [_type(DType.BOOL, 2), _type(DType.BOOL, 2)], "bool is not allowed"),
        ("Mul", [_type(DType.FLOAT32, 2), _type(DType.FLOAT32, 3)], "do not broadcast"),
        ("Exp", [_type(DType.INT32, 2)], "int32 is not allowed"),
        ("And", [_type(DType.INT8, 2), _type(DType.INT8, 2)], "int8 is not allowed"),
        ("Where", [_type(DType.INT8), _type(DType.INT8), _type(DType.INT8)], "int8 is not allowed"),
        ("Pow", [_type(DType.FLOAT32, 2), _type(DType.BOOL)], "bool is not allowed"),
        ("Neg", [None], "input 0 is required"),
    ],
)
def test_refusals(name: str, operands: list[TensorType | None], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types(name, operands, {})
