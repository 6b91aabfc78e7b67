"""Kernels on lines of every length around their vectors, against numpy's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import DType
from popc_runtime.kernels.parts.fused_steps import FusedStep, written
from popc_runtime.native import Library
from tests.native.bindings import steady_results

_LENGTHS: Final = (1, 7, 8, 15, 16, 31, 33, 63, 64, 65, 127, 128, 200)
_LAID: Final[dict[str, Callable[[Any], Any]]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "sliced": lambda x: np.repeat(x, 3, axis=0)[::3],
    "spread": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "off by one": lambda x: np.concatenate([x.reshape(-1)[:1], x.reshape(-1)])[1:].reshape(x.shape),
}


def _numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 9).astype(dtype)


@pytest.mark.parametrize("layout", _LAID)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("opcode", "wanted"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
def test_extremes_of_lines(
    library: Library, opcode: str, wanted: Callable[..., Any], dtype: str, layout: str
) -> None:
    for length in _LENGTHS:
        x = _numbers((3, 5, length), dtype, length)
        x[1, 2, length // 2] = np.nan
        x[2, 4, -1] = np.inf
        x[0, 0] = -np.inf
        x = _LAID[layout](x)
        for axes in ((2,), (0, 2), (1, 2), (0, 1, 2), (0,), (0, 1)):
            expected = wanted(x, axis=axes, keepdims=True)
            out = [np.empty(expected.shape, dtype)]
            (got,) = steady_results(library, opcode, [x], out, {"axes": axes, "keepdims": 1})
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 63, 64, 65, 79, 130])
@pytest.mark.parametrize("opcode", ["ReduceSum", "ReduceMean"])
def test_sums_of_columns(library: Library, opcode: str, columns: int) -> None:
    for rows in (1, 2, 9):
        x = _numbers((2, rows, columns), "float32")
        exact = x.sum(1, np.float64, keepdims=True)
        expected = exact / rows if opcode == "ReduceMean" else exact
        out = [np.empty(expected.shape, np.float32)]
        (got,) = steady_results(library, opcode, [x], out, {"axes": (1,), "keepdims": 1})
        np.testing.assert_allclose(got, expected, rtol=0, atol=rows * 2**-23 * np.abs(x).sum())


@pytest.mark.parametrize("dtype", ["float16", "uint8", "float32", "int64"])
@pytest.mark.parametrize("layout", _LAID)
def test_turned_matrices(library: Library, layout: str, dtype: str) -> None:
    sizes = [(1, 9), (7, 8), (8, 7), (8, 8), (9, 40), (33, 31), (40, 65), (3, 2), (64, 130)]
    for rows, columns in sizes:
        x = np.arange(2 * rows * columns).astype(dtype).reshape(2, rows, columns)
        x = _LAID[layout](x)
        for perm in ((0, 2, 1), (2, 0, 1), (2, 1, 0), (1, 2, 0)):
            expected = x.transpose(perm)
            out = [np.empty(expected.shape, dtype)]
            (got,) = steady_results(library, "Transpose", [x], out, {"perm": perm})
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("layout", _LAID)
def test_bytes_of_halves_are_turned_as_they_are(library: Library, layout: str) -> None:
    """Pairs of bytes become elements of 16 bits, which lie anywhere."""
    x = _LAID[layout](np.arange(20 * 24 * 2).astype(np.uint8).reshape(20, 24, 2))
    expected = x.transpose(1, 0, 2)
    out = [np.empty(expected.shape, np.uint8)]
    (got,) = steady_results(library, "Transpose", [x], out, {"perm": (1, 0, 2)})
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("layout", _LAID)
def test_truth_values_that_are_equal(library: Library, layout: str) -> None:
    a, b = (_LAID[layout](_numbers((6, 75), "float32", seed) > 0) for seed in range(2))
    for left, right in ((a, b), (a, b[:, :1]), (a[:1], b), (a, np.ones((), bool))):
        expected = left == right
        out = [np.empty(expected.shape, bool)]
        (got,) = steady_results(library, "Equal", [left, right], out, {})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("columns", [2, 3, 15, 16, 31, 33, 64, 200, 1030])
@pytest.mark.parametrize("layout", _LAID)
def test_single_rows_by_matrices_that_change(library: Library, layout: str, columns: int) -> None:
    for depth in (1, 2, 7, 8, 9, 40):
        left = _numbers((1, depth), "float32", depth)
        right = _LAID[layout](_numbers((depth, columns), "float32", columns))
        exact = left.astype(np.float64) @ right
        bound = 2 * depth * 2**-24 * (np.abs(left).astype(np.float64) @ np.abs(right))
        (got,) = steady_results(
            library, "MatMul", [left, right], [np.empty((1, columns), np.float32)], {}
        )
        assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("size", _LENGTHS)
def test_casts_of_halves(library: Library, size: int) -> None:
    x = _numbers((3, size), "float32")
    half = x.astype(np.float16)
    (narrow,) = steady_results(library, "Cast", [x], [np.empty_like(half)], {})
    (wide,) = steady_results(library, "Cast", [half], [np.empty_like(x)], {})
    np.testing.assert_array_equal(narrow, half)
    np.testing.assert_array_equal(wide, half.astype(np.float32))


_TURNED: Final[dict[str, Callable[[Any], Any]]] = {
    "rows": lambda x: x.transpose(2, 0, 1).copy().transpose(1, 2, 0),
    "all": lambda x: x.T.copy().T,
    "channels last": lambda x: x.transpose(0, 2, 1).copy().transpose(0, 2, 1),
    "part": lambda x: np.repeat(x.T.copy(), 2, axis=0)[::2].T,
    "backwards": lambda x: x.T.copy()[:, ::-1].T[:, ::-1],
    "one line": lambda x: np.broadcast_to(x[:1, :1, :1], x.shape),
    "contiguous": lambda x: x,
}


@pytest.mark.parametrize("result", ["contiguous", "channels last", "all"])
@pytest.mark.parametrize("layout", _TURNED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_maps_of_operands_that_lie_otherwise(
    library: Library, layout: str, result: str, dtype: str
) -> None:
    """Large enough to be turned before."""
    x = _TURNED[layout](np.arange(4 * 65 * 70).reshape(4, 65, 70).astype(dtype))
    y = _TURNED["rows"](np.arange(4 * 65 * 70)[::-1].reshape(4, 65, 70).astype(dtype))
    parts = [(z, part) for z in (x, y) for part in (z[:1], z[:, :1])]  # which begin where all does
    pairs = [(x, y), (x, y[:, :1]), *parts]
    for left, right in ((x, x), *pairs, *(pair[::-1] for pair in pairs)):
        expected = left + right
        out = [_TURNED[result](np.zeros(x.shape, dtype))]
        (got,) = steady_results(library, "Add", [left, right], out, {})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("result", ["contiguous", "channels last"])
@pytest.mark.parametrize("layout", _TURNED)
def test_chains_of_operands_that_lie_otherwise(library: Library, layout: str, result: str) -> None:
    x = _TURNED[layout](_numbers((4, 65, 70), "float32"))
    y = _TURNED["all"](_numbers((4, 65, 70), "float32", 1))
    dtype = DType.FLOAT32
    steps = (
        FusedStep("Mul", (0, 1), dtype, {}),
        FusedStep("Add", (2, 0), dtype, {}),
        FusedStep("Relu", (3,), dtype, {}),
    )
    out = [_TURNED[result](np.zeros(x.shape, np.float32))]
    (got,) = steady_results(library, "FusedElementwise", [x, y], out, written(steps))
    np.testing.assert_allclose(got, np.maximum(x * y + x, 0), rtol=1e-6, atol=1e-5)
