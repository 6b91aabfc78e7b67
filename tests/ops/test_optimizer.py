"""Steps of optimizers: formulas on tensors of several blocks, types, in place, operands refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops import OPS
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from popc_runtime.kernels.core.stored import from_bfloat16
from tests.support.oracles import run_kernel

_RNG: Final = np.random.default_rng(0)
_LONG: Final = (3, 40_001)  # several blocks, none of them even

_Formula = Callable[..., Array]


def _size(v: Array, beta: float, t: float, *, bias: bool) -> Array:
    return np.asarray(np.sqrt(v / (1 - beta**t) if bias else v))


def _adam(w: Array, m: Array, v: Array, rate: float, keep: float, *rest: float) -> Array:
    beta1, beta2, eps, t = rest
    mean = m / (1 - beta1**t)
    return np.asarray(keep * w - rate * mean / (_size(v, beta2, t, bias=True) + eps))


# op, attributes, number of tensors, scalars, formula
_Row = tuple[str, dict[str, Attribute], int, tuple[float, ...], _Formula]
_ROWS: Final[list[_Row]] = [
    ("SGD0VarUpdate", {}, 2, (0.1, 0.9), lambda w, g, r, k: k * w - r * g),
    ("SGD0VarUpdate", {}, 2, (0.1, 1.0), lambda w, g, r, k: k * w - r * g),
    ("SGD1VarUpdate", {}, 2, (0.1,), lambda w, v, r: w - r * v),
    ("SGD1VarUpdate", {}, 2, (0.0,), lambda w, v, r: w - r * v),
    ("SGD1AcclUpdate", {}, 2, (0.9, 0.2), lambda v, w, m, d: m * v + d * w),
    ("SGD1AcclUpdate", {}, 2, (1.0, 1.0), lambda v, w, m, d: m * v + d * w),
    ("SGD2AcclUpdate", {}, 3, (0.9, 0.5, 0.2), lambda v, g, w, m, s, d: m * v + s * g + d * w),
    ("SGD2AcclUpdate", {}, 3, (0.9, 1.0, 0.0), lambda v, g, w, m, s, d: m * v + s * g + d * w),
    (
        "SGDNesterovVarUpdate",
        {},
        3,
        (0.1, 0.2, 0.9),
        lambda w, v, g, r, s, k: k * w - s * v - r * g,
    ),
    ("ScaledVarUpdate", {}, 2, (0.1, 0.9), lambda w, x, r, k: k * w - r * x),
    ("ScaledGradient", {"to": ""}, 2, (0.5, 0.1), lambda g, w, s, d: s * g + d * w),
    ("AccumulateMoment", {"kind": "decay_add"}, 2, (0.9,), lambda m, x, k: k * m + x),
    ("AccumulateMoment", {"kind": "decay_add"}, 2, (0.9, 0.5), lambda m, x, k, s: k * m + s * x),
    ("AccumulateMoment", {"kind": "decay_add_square"}, 2, (1.0,), lambda m, x, k: k * m + x * x),
    (
        "AccumulateMoment",
        {"kind": "decay_add_square"},
        2,
        (0.9, 0.5),
        lambda m, x, k, s: k * m + (s * x) ** 2,
    ),
    (
        "AccumulateMoment",
        {"kind": "moving_average"},
        2,
        (0.9, 0.5),
        lambda m, x, k, s: k * m + (1 - k) * s * x,
    ),
    (
        "AccumulateMoment",
        {"kind": "moving_average_square"},
        2,
        (0.9, 0.5),
        lambda m, x, k, s: k * m + (1 - k) * (s * x) ** 2,
    ),
    (
        "AccumulateMoment",
        {"kind": "infinity"},
        2,
        (0.9, 0.5),
        lambda m, x, k, s: np.maximum(k * m, np.abs(s * x)),
    ),
    ("AdamVarUpdate", {"mode": "adam"}, 3, (0.1, 0.9, 0.8, 0.9, 0.01, 3.0), _adam),
    (
        "AdamVarUpdate",
        {"mode": "adam_no_bias"},
        3,
        (0.1, 1.0, 0.8, 0.9, 0.01),
        lambda w, m, v, r, k, _b, _c, e: k * w - r * m / (np.sqrt(v) + e),
    ),
    (
        "AdamVarUpdate",
        {"mode": "adamax"},
        3,
        (0.1, 1.0, 0.8, 0.9, 0.01, 2.0),
        lambda w, m, v, r, k, b, _, e, t: k * w - r * m / (1 - b**t) / (v + e),
    ),
    (
        "AdamUpdater",
        {"mode": "lamb"},
        3,
        (0.1, 0.8, 0.9, 0.01, 2.0),
        lambda m, v, w, d, b, c, e, t: m / (1 - b**t) / (_size(v, c, t, bias=True) + e) + d * w,
    ),
    (
        "AdamUpdater",
        {"mode": "lamb_no_bias"},
        3,
        (0.0, 0.8, 0.9, 0.01),
        lambda m, v, w, d, _b, _c, e: m / (np.sqrt(v) + e) + d * w,
    ),
    (
        "LambVarUpdate",
        {},
        2,
        (0.1, 4.0, 9.0),
        lambda w, x, r, a, b: w - r * np.sqrt(a) / np.sqrt(b) * x,
    ),
    ("LambVarUpdate", {}, 2, (0.1, 4.0, 9.0, 1.5), lambda w, x, r, _, b, n: w - r * n / b**0.5 * x),
    ("LambVarUpdate", {}, 2, (0.1, 0.0, 9.0), lambda w, x, r, _a, _b: w - r * x),
    ("LambVarUpdate", {}, 2, (0.1, 9.0, 0.0), lambda w, x, r, _a, _b: w - r * x),
    (
        "RMSPropUpdater",
        {"tf_variant": 0},
        3,
        (0.01, 0.5),
        lambda g, v, a, e, s: s * g / (np.sqrt(v + 1 - a * a) + e),
    ),
    (
        "RMSPropUpdater",
        {"tf_variant": 1},
        3,
        (0.01,),
        lambda g, v, a, e: g / np.sqrt(v + 1 - a * a + e),
    ),
    (
        "AdaDeltaUpdater",
        {},
        3,
        (0.01, 0.5),
        lambda g, v, u, e, s: s * g * np.sqrt((u + e) / (v + e)),
    ),
]


def _tensors(row: _Row, shape: tuple[int, ...], dtype: Any) -> list[Array]:
    """Operands at which the op is smooth: moments are positive, variances too."""
    tensors = [_RNG.uniform(0.1, 1, shape).astype(dtype) for _ in range(row[2])]
    if row[0] == "RMSPropUpdater":
        tensors[1] = (tensors[1] + dtype(1)).astype(dtype)
    return tensors


def _expected(row: _Row, tensors: list[Array]) -> Array:
    wide = [tensor.astype(np.float64) for tensor in tensors]
    if row[0] == "RMSPropUpdater":
        wide[1] -= 1
    return row[4](*wide, *row[3])


def _attributes(row: _Row, dtype: DType) -> dict[str, Attribute]:
    return {**row[1], "to": dtype.value} if "to" in row[1] else row[1]


def _run(row: _Row, tensors: list[Array], *, constant: bool, bf16: bool = False) -> Array:
    scalars = [np.asarray(value, np.float64 if constant else np.float32) for value in row[3]]
    operands = [*tensors, *scalars]
    types = [TensorType(DType.of(a.dtype), a.shape) for a in operands]
    if bf16:
        operands[: row[2]] = [tensor.view(np.uint16) for tensor in tensors]
    known = [False] * len(tensors) + [constant] * len(scalars)
    (result,) = run_kernel(row[0], operands, types, _attributes(row, types[0].dtype), known)
    return from_bfloat16(result) if bf16 else result


def _name(row: _Row) -> str:
    return "-".join([row[0], *map(str, row[1].values()), *map(str, row[3])])


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "changeable"])
@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_formula(row: _Row, *, constant: bool) -> None:
    for dtype, tolerance in [(np.float32, 1e-5), (np.float64, 1e-12 if constant else 1e-6)]:
        for shape in [(), (3, 0), (2, 5), _LONG]:
            tensors = _tensors(row, shape, dtype)
            result = _run(row, tensors, constant=constant)
            assert result.dtype == dtype
            np.testing.assert_allclose(result, _expected(row, tensors), tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_half_is_rounded_once(row: _Row, dtype: Any) -> None:
    tensors = _tensors(row, (40_001,), dtype)
    result = _run(row, tensors, constant=True, bf16=dtype is ml_dtypes.bfloat16)
    expected = _expected(row, tensors)
    step = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(result.astype(np.float64), expected, 0.51 * step, 1e-6)


@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_half_weights_with_float32_state(row: _Row) -> None:
    tensors = _tensors(row, _LONG, np.float32)
    tensors[0] = tensors[0].astype(np.float16)
    result = _run(row, tensors, constant=True)
    np.testing.assert_allclose(result.astype(np.float64), _expected(row, tensors), 6e-4, 1e-6)


@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_strided_operands(row: _Row) -> None:
    tensors = [tensor.T for tensor in _tensors(row, (301, 203), np.float32)]
    np.testing.assert_allclose(
        _run(row, tensors, constant=True), _expected(row, tensors), 1e-5, 1e-5
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_in_place(row: _Row, threads: int) -> None:
    """The result may take the memory of operand 0."""
    assert OPS[row[0]].inplace == (0,)
    tensors = _tensors(row, (600_000,), np.float32)
    expected = _run(row, tensors, constant=True)
    scalars = [np.asarray(value, np.float64) for value in row[3]]
    operands = [*tensors, *scalars]
    dtypes = tuple(DType.of(a.dtype) for a in operands)
    binding = Binding(
        inputs=tuple(operands),
        outputs=(tensors[0],),
        input_dtypes=dtypes,
        output_dtypes=dtypes[:1],
        attributes=_attributes(row, dtypes[0]),
        constant=tuple(array.ndim == 0 for array in operands),
        scratch=Scratch(threads),
        random=RandomState(),
    )
    for call in prepare(KERNELS[row[0]], binding):
        call()
    np.testing.assert_array_equal(tensors[0], expected)


def test_a_variance_below_zero_is_zero() -> None:
    """Rounding may make the mean square less than the square of the mean."""
    mean = np.full(5, 0.1, np.float32)
    square = np.nextafter(mean * mean, np.float32(0))
    row = next(row for row in _ROWS if row[0] == "RMSPropUpdater")
    result = _run((*row[:3], (0.5,), row[4]), [mean, square, mean], constant=True)
    np.testing.assert_allclose(result, 0.2)


@pytest.mark.parametrize("constant", [True, False])
def test_no_rate_no_step(*, constant: bool) -> None:
    """Even where the moments are 0, or not numbers that could be divided by."""
    row = next(row for row in _ROWS if row[0] == "AdamVarUpdate")
    w = _RNG.normal(size=7).astype(np.float32)
    zeros = np.zeros_like(w)
    scalars = (0.0, 1.0, 0.9, 0.999, 1e-8, 1.0)
    result = _run((*row[:3], scalars, row[4]), [w, zeros, zeros], constant=constant)
    np.testing.assert_array_equal(result, w)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (700, 900)])
def test_lamb_square(shape: tuple[int, ...], dtype: Any) -> None:
    x = _RNG.normal(size=shape).astype(dtype)
    for array in (x, x.T):
        types = [TensorType(DType.of(array.dtype), array.shape)]
        (result,) = run_kernel("LambSquare", [array], types, {}, [False])
        assert result.dtype == np.float32
        assert result == pytest.approx(float((array.astype(np.float64) ** 2).sum()), rel=1e-5)


def test_lamb_square_does_not_overflow_in_half() -> None:
    x = np.full(100, 6e4, np.float16)
    types = [TensorType(DType.FLOAT16, x.shape)]
    assert run_kernel("LambSquare", [x], types, {}, [False])[0] == pytest.approx(3.6e11, rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_histogram(dtype: Any) -> None:
    x = _RNG.normal(size=(300, 301)).astype(dtype)
    x[0, :4] = [np.nan, np.inf, -np.inf, -0.5]
    types = [TensorType(DType.of(x.dtype), x.shape)]
    (counts,) = run_kernel("Histogram", [x], types, {"levels": (0.5, 1.5)}, [False])
    size = np.abs(x)
    within = [int((size <= level).sum()) for level in (0.5, 1.5)]
    assert counts.tolist() == [within[0], within[1] - within[0], x.size - within[1]]


@pytest.mark.parametrize(
    ("counts", "scale", "before", "expected"),
    [
        ((90, 10), 100, 0, 8.0),
        ((89, 11), 100, 0, 2.0),
        ((89, 11), 100, 1, 4.0),
        ((100, 0), 100, 6, 8.0),
        ((0, 0), 512, 0, 8.0),
        ((0, 0), 513, 0, 4.0),
        ((0, 1), 512, 0, 2.0),
        ((0, 0), 4096, 0, 2.0),
    ],
)
def test_loss_scale_update(
    counts: tuple[int, int], scale: float, before: int, expected: float
) -> None:
    scalars = [np.float32(scale), np.float32(before)]
    operands = [np.float32(4.0), np.asarray(counts, np.float32), *scalars]
    arrays = [np.asarray(operand) for operand in operands]
    types = [TensorType(DType.FLOAT32, array.shape) for array in arrays]
    attributes: dict[str, Attribute] = {"threshold": 0.1, "period": 3, "largest": 1024.0}
    (result,) = run_kernel("LossScaleUpdate", arrays, types, attributes, [False] * 4)
    assert result == expected


_F32, _SCALAR = TensorType(DType.FLOAT32, (2,)), TensorType(DType.FLOAT32, ())
_REFUSED: Final[list[tuple[str, list[TensorType | None], dict[str, Attribute], str]]] = [
    ("SGD0VarUpdate", [_F32, _F32, _SCALAR], {}, "3 operands are not 2 tensors and 2 scalars"),
    ("SGD0VarUpdate", [_F32, _F32, None, _SCALAR], {}, "scalar operand 2 is missing"),
    ("SGD1VarUpdate", [_F32, None, _SCALAR], {}, "input 1 is required but missing"),
    (
        "SGD1VarUpdate",
        [_F32, TensorType(DType.FLOAT32, (3,)), _SCALAR],
        {},
        "operand 1 is float32[3], but must have the shape [2]",
    ),
    (
        "SGD1VarUpdate",
        [_F32, TensorType(DType.INT32, (2,)), _SCALAR],
        {},
        "element type int32 is not allowed here",
    ),
    ("SGD1VarUpdate", [_F32, _F32, _F32], {}, "operand 2 is float32[2], but must be a scalar"),
    (
        "AccumulateMoment",
        [_F32, _F32, _SCALAR],
        {"kind": "median"},
        "attribute 'kind' is 'median', expected one of decay_add, ",
    ),
    ("AdamVarUpdate", [_F32] * 3, {"mode": "nadam"}, "attribute 'mode' is 'nadam', expected one"),
    ("Histogram", [_F32], {"levels": (2.0, 1.0)}, "attribute 'levels' must be an ascending list"),
    (
        "LossScaleUpdate",
        [_SCALAR, _F32, _F32],
        {"period": 0, "threshold": 0.1},
        "attribute 'period' must be at least 1, not 0",
    ),
    (
        "LossScaleUpdate",
        [_F32, _F32, _F32],
        {"period": 1, "threshold": 0.1, "largest": 1.0},
        "float32[2], float32[2] and float32[2] are not a factor, two counts and a scale",
    ),
]


@pytest.mark.parametrize(("op_type", "types", "attributes", "message"), _REFUSED)
def test_wrong_modes_periods_and_shapes_are_refused(
    op_type: str, types: list[TensorType | None], attributes: dict[str, Attribute], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        infer_types(op_type, types, attributes)
    assert message in caught.value.message
