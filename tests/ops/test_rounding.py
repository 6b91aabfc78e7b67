"""Rounding to float16 and bfloat16 at random, and what becomes of numbers that are too large."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc.ir import TensorType
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, MoveKernel, RandomState, Scratch, prepare
from popc_runtime.kernels.core.rounding import rounding_calls, to_nearest_half
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from tests.support.oracles import run_ir, run_kernel

_NARROW = (DType.FLOAT16, DType.BFLOAT16)
_STOCHASTIC = Rounding(stochastic=True)
_INF, _NAN = float("inf"), float("nan")


def _rounded(
    values: object,
    rounding: Rounding = _STOCHASTIC,
    dtype: DType = DType.FLOAT16,
    random: RandomState | None = None,
) -> Array:
    array = np.array(values, np.float32, ndmin=1)
    for call in rounding_calls(rounding, array, dtype, Scratch(), random or RandomState()):
        with np.errstate(all="ignore"):
            call()
    return array


def _every_number(dtype: DType) -> Array:
    """All numbers of a format, infinities and nans too."""
    bits = np.arange(1 << 16).astype(np.uint16)
    if dtype is DType.BFLOAT16:
        return from_bfloat16(bits)
    with np.errstate(invalid="ignore"):
        return bits.view(np.float16).astype(np.float32)


def _neighbours(value: float, dtype: DType) -> tuple[float, float]:
    kind = np.float16 if dtype is DType.FLOAT16 else ml_dtypes.bfloat16
    nearest = kind(value)
    away = kind(_INF if float(nearest) < value else -_INF)
    other = np.nextafter(nearest, away)
    low, high = sorted((float(nearest), float(other)))
    return low, high


@pytest.mark.parametrize("dtype", _NARROW)
def test_numbers_of_the_format_stay(dtype: DType) -> None:
    every = _every_number(dtype)
    numbers = ~np.isnan(every)
    for seed in range(3):
        rounded = _rounded(every, dtype=dtype, random=RandomState(seed))
        assert np.array_equal(rounded.view(np.uint32)[numbers], every.view(np.uint32)[numbers])
        assert np.isnan(rounded[~numbers]).all()


@pytest.mark.parametrize("dtype", _NARROW)
@pytest.mark.parametrize(
    "value", [1.0001, -3.3333, 1000.3, 6.12e-5, 6.1e-5, -5.9001e-5, 1.1e-6, 3.1e-8, -65503.7]
)
def test_the_mean_is_the_number(value: float, dtype: DType) -> None:
    """Normal numbers and, for float16, subnormal ones and those next to the border."""
    count = 1 << 18
    rounded = _rounded(np.full(count, value), dtype=dtype).astype(np.float64)
    exact = float(np.float32(value))
    low, high = _neighbours(exact, dtype)
    assert set(np.unique(rounded)) == {low, high}
    share = (exact - low) / (high - low)
    deviation = np.sqrt(share * (1 - share) / count)
    assert abs((rounded == high).mean() - share) < 5 * deviation + 2.0**-13


def test_tiny_numbers_vanish_on_average_only() -> None:
    """A 32nd of the least float16 becomes that in one of 32 cases."""
    least = 2.0**-24
    rounded = _rounded(np.full(1 << 16, least / 32))
    assert set(np.unique(rounded)) == {0.0, least}
    assert abs((rounded > 0).mean() - 1 / 32) < 0.005


def test_overflow_is_that_of_rounding_to_nearest() -> None:
    values = [65504.0, 65519.9, 65520.0, 70000.0, _INF, -65519.9, -65520.0, -1e30, -_INF]
    for seed in range(20):
        rounded = _rounded(values, random=RandomState(seed))
        with np.errstate(over="ignore"):
            expected = np.array(values, np.float32).astype(np.float16)
            assert np.array_equal(rounded.astype(np.float16), expected)
    assert np.isnan(_rounded([_NAN, -_NAN])).all()
    assert np.signbit(_rounded([-0.0, -1e-30])).all()


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize(
    ("overflow", "expected"),
    [
        ("nan", [65504, 65504, _NAN, _NAN, -65504, _NAN, _INF, -_INF, _NAN]),
        ("largest", [65504, 65504, 65504, 65504, -65504, -65504, _INF, -_INF, _NAN]),
    ],
)
def test_other_results_of_overflow(
    overflow: str, expected: list[float], *, stochastic: bool
) -> None:
    values = [65504, 65519, 65520, 1e38, -65519, -65520, _INF, -_INF, _NAN]
    rounded = _rounded(values, Rounding(stochastic=stochastic, overflow=overflow))
    assert np.array_equal(
        rounded.astype(np.float16), np.array(expected, np.float16), equal_nan=True
    )
    limit = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)  # type: ignore[no-untyped-call]
    rounding = Rounding(overflow=overflow)
    wide = _rounded([limit, 3.4e38, -3.4e38], rounding, DType.BFLOAT16)
    narrow = from_bfloat16(to_bfloat16(wide))
    large = limit if overflow == "largest" else _NAN
    assert np.array_equal(narrow, np.array([limit, large, -large], np.float32), equal_nan=True)


def test_equal_seeds_give_equal_results_and_states_can_be_restored() -> None:
    values = np.random.default_rng(0).standard_normal(70_001).astype(np.float32)
    first, again, other = (RandomState(seed) for seed in (1, 1, 2))
    results = [_rounded(values, random=random) for random in (first, again, other)]
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    state = json.loads(json.dumps(first.save()))
    following = _rounded(values, random=first)
    assert not np.array_equal(following, results[0])
    other.restore(state)
    assert np.array_equal(_rounded(values, random=other), following)
    first.seed(1)
    assert np.array_equal(_rounded(values, random=first), results[0])


def test_other_random_numbers_do_not_depend_on_rounding() -> None:
    alone, rounding = RandomState(3), RandomState(3)
    _rounded(np.ones(1000), random=rounding)
    assert alone.generator.random() == rounding.generator.random()


@given(
    st.lists(
        st.one_of(
            st.floats(width=32),
            st.floats(-1e5, 1e5, width=32),
            st.floats(-(2.0**-13), 2.0**-13, width=32),
        ),
        max_size=40,
    )
)
def test_nearest_half(numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    with np.errstate(all="ignore"):
        expected = array.astype(np.float16).astype(np.float32)
        for call in to_nearest_half(array, Scratch()):
            call()
    assert np.array_equal(array, expected, equal_nan=True)


# -- instructions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", _NARROW)
def test_an_instruction_rounds_its_result(dtype: DType) -> None:
    """The sum 1 + 2^-13 lies between two numbers, wherever the operands come from."""
    shape = (300, 200)
    small = 2.0**-13 if dtype is DType.FLOAT16 else 2.0**-10
    numbers = [np.float32(1), np.float32(small)]
    if dtype is DType.BFLOAT16:
        arrays = [to_bfloat16(np.broadcast_to(item, shape)) for item in numbers]
    else:
        arrays = [np.broadcast_to(item.astype(np.float16), shape) for item in numbers]
    types = [TensorType(dtype, shape)] * 2
    attributes: dict[str, Attribute] = {"rounding": "stochastic"}
    for constant in ([False, False], [True, False]):
        (result,) = run_kernel("Add", arrays, types, attributes, constant)
        values = from_bfloat16(result) if dtype is DType.BFLOAT16 else result
        assert np.unique(values).size == 2
        assert abs(values.astype(np.float64).mean() - (1 + small)) < small / 8


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("MatMul", [(9, 40), (40, 11)], {}),
        ("Softmax", [(7, 33)], {"axis": 1}),
        ("Gelu", [(50, 10)], {"approximate": "none"}),
        ("Conv", [(2, 3, 6, 6), (4, 3, 3, 3)], {"pads": (1, 1, 1, 1)}),
    ],
)
def test_results_are_neighbours_of_exact_ones(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Attribute]
) -> None:
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    (exact,) = run_ir(op_type, [array.astype(np.float32) for array in inputs], attributes)
    (rounded,) = run_ir(op_type, inputs, {**attributes, "rounding": "stochastic"})
    spacing = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float32)
    errors = np.abs(rounded.astype(np.float32) - exact)
    assert (errors <= spacing * 1.01).all()
    assert (errors > spacing / 2).any()  # no rounding to nearest


def test_overflow_of_an_instruction() -> None:
    x = np.array([300, 200, -np.inf], np.float16)

    def results(mode: str) -> list[float]:
        found: list[float] = run_ir("Mul", [x, x], {"overflow": mode})[0].tolist()
        return found

    assert results("largest") == [65504, 40000, _INF]
    assert np.isnan(results("nan")[0])
    assert results("nan")[1:] == [40000, _INF]


def test_moving_rounds_nothing() -> None:
    """What moves elements is given them as they are: there is nothing that could be rounded."""
    x = np.array([1.5, 2.5], np.float16)
    out = np.empty_like(x)
    attributes: dict[str, Attribute] = {"shape": (2,), "rounding": "stochastic"}
    random = RandomState()
    binding = Binding(
        inputs=(x,),
        outputs=(out,),
        input_dtypes=(DType.FLOAT16,),
        output_dtypes=(DType.FLOAT16,),
        attributes=attributes,
        constant=(False,),
        scratch=Scratch(),
        random=random,
    )
    kernel = KERNELS["Reshape"]
    assert isinstance(kernel, MoveKernel)
    for call in prepare(kernel, binding):
        call()
    assert np.array_equal(out, x)
    assert random.save()["rounding"] is None
