"""Matrix products and what follows them, native against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.native import Library, find_library
from tests.native.bindings import bound, encode, steady_results
from tests.native.test_kernels import _compare, _numbers


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_products(data: st.DataObject) -> None:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    sizes = st.integers(1, 70)
    m, n, k = (data.draw(sizes, label=name) for name in "mnk")
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2), label="batch")
    left = _numbers(*(data.draw(st.sampled_from([size, 1])) for size in batch), m, k)
    right = _numbers(*batch, k, n, seed=1)
    if data.draw(st.booleans(), label="turned"):
        right = np.ascontiguousarray(np.swapaxes(right, -1, -2)).swapaxes(-1, -2)
    out = np.empty((*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), m, n), np.float32)
    bias = _numbers(n, seed=2) if data.draw(st.booleans(), label="bias") else None
    residual = _numbers(*out.shape, seed=3) if data.draw(st.booleans(), label="residual") else None
    activation = data.draw(st.sampled_from(["", "Relu", "Gelu", "Tanh"]), label="activation")
    constant = [1] if data.draw(st.booleans(), label="constant") else []
    inputs = [left, right, bias, residual]
    _compare(library, "MatMul", inputs, [out], {"activation": activation}, constant, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1000, 700), (200, 300, 1100), (65, 33, 513), (9, 70, 1200), (3000, 40, 70)],
)
@pytest.mark.parametrize("constant", [(), (1,)])
def test_long_products(library: Library, m: int, n: int, k: int, constant: tuple[int, ...]) -> None:
    left, right, bias = _numbers(m, k), _numbers(k, n, seed=1), _numbers(n, seed=2)
    out, residual = np.empty((m, n), np.float32), _numbers(m, n, seed=3)
    inputs = [left, right, bias, residual]
    _compare(library, "MatMul", inputs, [out], {"activation": "Relu"}, constant, 1e-3, 1e-3)


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("columns", [1, 3, 17, 64, 65])
@pytest.mark.parametrize(
    ("batch", "m", "k"),
    [
        ((), 1, 5),
        ((), 7, 16),
        ((), 1000, 33),
        ((), 601, 3),
        ((2,), 13, 1),
        ((3, 2), 1, 40),
        ((5,), 61, 8),
    ],
)
def test_few_columns(
    library: Library,
    batch: tuple[int, ...],
    m: int,
    k: int,
    columns: int,
    constant: tuple[int, ...],
) -> None:
    """Rows are read where they lie: neighbours, parts of wider ones, columns of others."""
    wide = _numbers(*batch, k, m + 2)
    out, bias = np.empty((*batch, m, columns), np.float32), _numbers(columns, seed=2)
    residual, attributes = _numbers(*out.shape, seed=3), {"activation": "Relu"}
    right = _numbers(*batch, k, 2 * columns, seed=1)[..., ::2]
    rows = _numbers(*batch, m, k + 3)[..., 1:-2]
    for left in (np.ascontiguousarray(rows), rows, np.swapaxes(wide, -1, -2)[..., 1:-1, :]):
        for factor in (right, right.reshape(-1, k, columns)[0]):
            inputs = [left, factor, bias, residual]
            _compare(library, "MatMul", inputs, [out], attributes, constant, 1e-4, 1e-4)


@pytest.mark.parametrize("columns", [1, 7, 32, 65, 300])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_of_a_batch(library: Library, rows: int, columns: int) -> None:
    """Each with a matrix that is part of a wider one, or repeated."""
    k = 37
    left, wide = _numbers(5, rows, k), _numbers(5, k + 2, columns + 3, seed=1)
    bias, residual = _numbers(columns, seed=2), _numbers(5, rows, columns, seed=3)
    part = wide[:, 1:-1, 2:-1]
    for right in (part, np.broadcast_to(part[:1], part.shape)):
        (found,) = steady_results(
            library, "MatMul", [left, right, bias, residual], [np.empty_like(residual)], {}
        )
        expected = left.astype(np.float64) @ right + bias + residual
        largest = float(np.abs(left).max() * np.abs(wide).max())
        np.testing.assert_allclose(found, expected, rtol=0, atol=k * (k + 2) * largest * 2.0**-24)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(library: Library, turned: tuple[int, int]) -> None:
    a, b = _numbers(*((9, 20) if not turned[0] else (20, 9))), _numbers(20, 31, seed=1)
    b = b if not turned[1] else np.ascontiguousarray(b.T)
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": 1.0, "beta": 1.0}
    _compare(library, "Gemm", [a, b, _numbers(31)], [np.empty((9, 31), np.float32)], attributes,
             rtol=1e-4, atol=1e-4)  # fmt: skip


def test_a_constant_addend_of_another_type(library: Library) -> None:
    """A double may be no float32 at all: numpy's kernels say what is to be done."""
    a, b, wide = _numbers(3, 4), _numbers(4, 5), np.full(1, 1e39)
    out = np.empty((3, 5), np.float32)
    binding = bound([a, b, wide], [out], {}, [2])
    assert encode("Gemm", binding, library.numbers) is None


@pytest.mark.parametrize("rows", [1, 4, 40])
def test_residuals_whose_columns_lie_side_by_side(library: Library, rows: int) -> None:
    left, right = _numbers(rows, 8, seed=1), _numbers(8, 5, seed=2)
    inputs = [left, right, None, _numbers(5, rows, seed=3).T]
    (got,) = steady_results(library, "MatMul", inputs, [np.empty((rows, 5), np.float32)], {})
    np.testing.assert_allclose(got, left @ right + inputs[3], rtol=1e-5, atol=1e-5)
