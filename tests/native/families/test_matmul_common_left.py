"""Products of one turned matrix with one or two others are one instruction."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.kernels.parts.common_left import CommonLeft, common_left
from popc_runtime.native import Library, NativeProgram
from popc_runtime.native.translation import translate

_MATRICES = (
    (1, 1, (1,)),
    (5, 3, (7, 2)),
    (40, 12, (16,)),
    (130, 25, (33, 64)),
    (257, 100, (1, 31)),
    (600, 250, (40, 17)),
)


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def _laid_out(matrix: Array, layout: str) -> Array:
    """The same numbers, in rows that lie elsewhere."""
    rows, columns = matrix.shape
    if layout == "slice":
        wide = np.zeros((rows, columns + 5), np.float32)[:, 2 : 2 + columns]
    elif layout == "backwards":
        wide = np.zeros((rows, columns), np.float32)[::-1]
    else:
        wide = np.zeros((2 * rows, columns), np.float32)[::2]
    wide[...] = matrix
    return wide


@pytest.mark.parametrize("layout", ["slice", "backwards", "every other"])
@pytest.mark.parametrize(("k", "m", "widths"), _MATRICES)
def test_products(library: Library, k: int, m: int, widths: tuple[int, ...], layout: str) -> None:
    left, rights = _numbers(k, m), [_numbers(k, n) for n in widths]
    expected = [left.T.astype(np.float64) @ right for right in rights]
    found = []
    for threads in (1, 3):
        outs = [_laid_out(np.full((m, n), np.nan, np.float32), layout) for n in widths]
        laid_out = [_laid_out(right, layout) for right in rights]
        operands = CommonLeft(_laid_out(left, layout), [*zip(laid_out, outs, strict=True)])
        record = translate(partial(common_left, (), operands), library.numbers)
        assert record is not None
        NativeProgram(library, [record], operands, threads).run()
        found.append(outs)
    for alone, shared, right in zip(*found, expected, strict=True):
        np.testing.assert_array_equal(alone, shared)
        np.testing.assert_allclose(alone, right, rtol=1e-5, atol=k * 1e-6)


def test_what_has_no_elements_stays_with_numpy(library: Library) -> None:
    for k, m, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        operands = CommonLeft(_numbers(k, m), [(_numbers(k, n), _numbers(m, n))])
        assert translate(partial(common_left, (), operands), library.numbers) is None
