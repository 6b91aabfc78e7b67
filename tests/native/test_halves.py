"""Kernels of float32 between conversions of float16 and bfloat16.

Results are rounded once, from sums that agree to about a millionth: they agree to one unit in the
last place of the half type, taken at the largest result, for a sum may be near a boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array, DType
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.core.binding import CollectiveKernel, MoveKernel
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from popc_runtime.native import Library, native_opcodes
from popc_runtime.native.halves import MOVES
from tests.native.bindings import native_results, numpy_results, steady_results

_LAYER: Final[dict[str, Any]] = {
    "direction": "bidirectional",
    "clip": 0.0,
    "input_forget": 0,
    "linear_before_reset": 1,
}


def _functions(*names: str) -> dict[str, Any]:
    zeros = (0.0,) * 2 * len(names)
    return _LAYER | {"activations": names * 2, "alphas": zeros, "betas": zeros}


_CASES: Final[tuple[tuple[str, list[tuple[int, ...]], tuple[int, ...], dict[str, Any]], ...]] = (
    ("MatMul", [(1, 300), (300, 40)], (1, 40), {}),
    ("MatMul", [(2, 3, 20, 30), (2, 3, 30, 40)], (2, 3, 20, 40), {}),
    ("MatMul", [(17, 30), (30, 40), (40,), (17, 40)], (17, 40), {"activation": "Relu"}),
    ("Gemm", [(17, 30), (40, 30), (40,)], (17, 40), {"transB": 1}),
    ("Conv", [(1, 6, 12, 12), (8, 6, 3, 3), (8,)], (1, 8, 10, 10), {}),
    ("MaxPool", [(1, 4, 8, 8)], (1, 4, 4, 4), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("AveragePool", [(1, 4, 8, 8)], (1, 4, 4, 4), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("Softmax", [(5, 70)], (5, 70), {"axis": 1}),
    ("LogSoftmax", [(5, 70)], (5, 70), {"axis": 1}),
    ("LayerNormalization", [(5, 70), (70,), (70,)], (5, 70), {"axis": 1, "epsilon": 1e-5}),
    ("RMSNormalization", [(5, 70), (70,)], (5, 70), {"axis": 1, "epsilon": 1e-5}),
    ("ReduceSum", [(5, 70)], (5, 1), {"axes": (1,)}),
    ("ReduceMean", [(5, 70)], (5, 1), {"axes": (1,)}),
    ("ReduceMax", [(5, 70)], (5, 1), {"axes": (1,)}),
    ("ReduceMin", [(5, 70)], (5, 1), {"axes": (1,)}),
    ("ReduceSumSquare", [(5, 70)], (5, 1), {"axes": (1,)}),
    ("RNN", [(5, 2, 9), (2, 20, 9), (2, 20, 20)], (5, 2, 2, 20), _functions("tanh")),
    ("GRU", [(5, 2, 9), (2, 60, 9), (2, 60, 20)], (5, 2, 2, 20), _functions("sigmoid", "tanh")),
    (
        "LSTM",
        [(5, 2, 9), (2, 80, 9), (2, 80, 20)],
        (5, 2, 2, 20),
        _functions("sigmoid", "tanh", "tanh"),
    ),
)
DIGITS: Final = {DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7}


def stored(values: Array, dtype: DType) -> Array:
    wide = values.astype(np.float32)
    return to_bfloat16(wide) if dtype is DType.BFLOAT16 else wide.astype(np.float16)


def numbers_of(values: Array, dtype: DType) -> Array:
    wide = from_bfloat16(values) if dtype is DType.BFLOAT16 else values
    return wide.astype(np.float64)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize(("opcode", "shapes", "result", "attributes"), _CASES)
def test_kernels_of_halves(
    library: Library,
    opcode: str,
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    attributes: dict[str, Any],
    dtype: DType,
    constant: tuple[int, ...],
) -> None:
    random = np.random.default_rng(0)
    inputs = [stored(random.standard_normal(shape), dtype) for shape in shapes]
    outputs = [np.empty(result, dtype.storage)]
    types = [dtype] * (len(inputs) + 1)
    arguments = (opcode, inputs, outputs, attributes, constant)
    expected = numbers_of(numpy_results(*arguments, dtypes=types)[0], dtype)
    got = numbers_of(steady_results(library, *arguments, dtypes=types)[0], dtype)
    assert np.abs(got - expected).max() <= DIGITS[dtype] * np.abs(expected).max()


_LAID: Final[dict[str, Callable[[Array], Array]]] = {
    "channels last": lambda x: np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1),
    "part of pixels": lambda x: np.moveaxis(
        np.concatenate([np.moveaxis(x, 1, -1)] * 2, axis=-1)[..., : x.shape[1]], -1, 1
    ),
    "one image": lambda x: np.broadcast_to(x[:1].copy(), x.shape),
    "backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
}


@pytest.mark.parametrize("layout", _LAID)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize(
    ("opcode", "shapes", "result", "attributes"),
    [
        ("Conv", [(2, 16, 9, 7), (8, 16, 3, 3), (8,)], (2, 8, 7, 5), {}),
        ("Conv", [(2, 16, 9, 7), (16, 1, 3, 3), (16,)], (2, 16, 7, 5), {"group": 16}),
        ("MaxPool", [(2, 16, 8, 6)], (2, 16, 4, 3), {"kernel_shape": (2, 2), "strides": (2, 2)}),
        ("ReduceMean", [(2, 16, 8, 6)], (2, 16, 1, 1), {"axes": (2, 3)}),
        ("Softmax", [(2, 16, 8, 6)], (2, 16, 8, 6), {"axis": 1}),
        ("MatMul", [(2, 3, 20, 30), (30, 40)], (2, 3, 20, 40), {}),
    ],
)
def test_images_keep_the_order_in_which_they_lie(
    library: Library,
    opcode: str,
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    attributes: dict[str, Any],
    dtype: DType,
    layout: str,
) -> None:
    random = np.random.default_rng(0)
    first, *rest = [stored(random.standard_normal(shape), dtype) for shape in shapes]
    inputs = [_LAID[layout](first), *rest]
    outputs = [np.empty(result, dtype.storage)]
    if layout == "channels last" and opcode in ("Conv", "MaxPool"):
        outputs = [_LAID[layout](outputs[0])]
    types = [dtype] * (len(inputs) + 1)
    arguments = (opcode, inputs, outputs, attributes, (1, 2))
    expected = numbers_of(numpy_results(*arguments, dtypes=types)[0], dtype)
    got = numbers_of(steady_results(library, *arguments, dtypes=types)[0], dtype)
    assert np.abs(got - expected).max() <= DIGITS[dtype] * np.abs(expected).max()


@pytest.mark.parametrize("opcode", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("layout", ["plain", "turned", "every second"])
def test_extremes_of_all_halves(
    library: Library, opcode: str, dtype: DType, axes: tuple[int, ...], layout: str
) -> None:
    """They are compared as integers: each with its neighbours in a random order."""
    bits = np.random.default_rng(0).permutation(1 << 16).astype(np.uint16)
    x = bits.view(dtype.storage).reshape(32, 64, 32)
    if layout == "turned":
        x = x.transpose(2, 1, 0)
    elif layout == "every second":
        x = x[:, ::2, ::-2]
    for part in (x, x[:3, :2, :3], x[:1]):
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(part.shape))
        out = [np.empty(shape, dtype.storage)]
        arguments = (opcode, [part], out, {"axes": axes, "keepdims": 1})
        expected = numbers_of(numpy_results(*arguments, dtypes=[dtype] * 2)[0], dtype)
        got = numbers_of(steady_results(library, *arguments, dtypes=[dtype] * 2)[0], dtype)
        np.testing.assert_array_equal(got, expected)


@given(
    rows=st.integers(1, 14),
    depth=st.integers(1, 70),
    columns=st.integers(1, 140),
    turned=st.integers(0, 1),
    dtype=st.sampled_from([DType.FLOAT16, DType.BFLOAT16]),
    seed=st.integers(0, 99),
)
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_constant_factors_that_stay_halves(
    library: Library,
    rows: int,
    depth: int,
    columns: int,
    turned: int,
    dtype: DType,
    seed: int,
) -> None:
    """Sums are those of the same numbers in float32, which factors that may change become."""
    random = np.random.default_rng(seed)
    shapes = [(rows, depth), (columns, depth) if turned else (depth, columns), (columns,)]
    inputs = [stored(random.standard_normal(shape), dtype) for shape in shapes]
    outputs = [np.empty((rows, columns), dtype.storage)]
    attributes = {"transB": turned, "activation": "Relu"}
    types = [dtype] * 4
    arguments = ("Gemm", inputs, outputs, attributes)
    expected = native_results(library, *arguments, dtypes=types)
    assert expected is not None
    (got,) = steady_results(library, *arguments, (1,), dtypes=types)
    np.testing.assert_array_equal(got, expected[0])


@pytest.mark.parametrize("opcode", ["MatMul", "Gemm", "Conv", "ConvTranspose", "ConvWeightsGrad"])
def test_partial_sums_in_half_are_numpys(library: Library, opcode: str) -> None:
    x = np.ones((4, 4) if opcode in ("MatMul", "Gemm") else (4, 4, 1, 1), np.float16)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1}
    for partials, is_native in (("half", False), ("float", True)):
        asked = {**attributes, "kernel_shape": (1, 1), "partials": partials}
        assert (native_results(library, opcode, [x, x], [x], asked) is not None) == is_native


def test_moves_are_those_of_numpy() -> None:
    kinds = (MoveKernel, CollectiveKernel)
    assert {opcode for opcode in native_opcodes() if isinstance(KERNELS[opcode], kinds)} == MOVES


@pytest.mark.parametrize("overflow", ["nan", "largest"])
def test_products_that_are_too_large(library: Library, overflow: str) -> None:
    x = np.full((4, 4), 200, np.float16)
    x[0] = 2
    arguments: dict[str, Any] = {"overflow": overflow, "rounding": "stochastic"}
    got = native_results(library, "MatMul", [x, x], [x], arguments)
    assert got is not None
    np.testing.assert_array_equal(got[0], numpy_results("MatMul", [x, x], [x], arguments)[0])
