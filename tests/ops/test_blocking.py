from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.kernels import Call, Scratch
from popc_runtime.kernels.core import blocking
from popc_runtime.kernels.core.blocking import blocked, coalesce, split


@st.composite
def operands(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Array]]:
    """An output shape and arrays that broadcast to it, some of them strided."""
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=4)))
    arrays: list[Array] = []
    for _ in range(draw(st.integers(1, 3))):
        dims = [draw(st.sampled_from([dim, 1])) for dim in shape]
        dims = dims[draw(st.integers(0, len(dims))) :]
        order = draw(st.permutations(list(range(len(dims)))))
        array = np.random.default_rng(len(arrays)).normal(size=[dims[axis] for axis in order])
        array = array.transpose(np.argsort(order))
        backwards = draw(st.booleans())
        arrays.append(array[::-1] if dims and backwards else array)
    return shape, arrays


def _sum_steps(out: Array, *arrays: Array) -> Iterator[Call]:
    *inputs, total = arrays
    yield partial(np.copyto, total, 0)
    for array in inputs:
        yield partial(np.add, total, array, out=total)
    yield partial(np.copyto, out, total)


@settings(max_examples=150, deadline=None)
@given(operands(), st.integers(1, 40))
def test_blocks_of_any_size_give_the_same_result(
    case: tuple[tuple[int, ...], list[Array]], elements: int
) -> None:
    shape, arrays = case
    out = np.full(shape, np.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "BLOCK_BYTES", 8 * elements)
        calls = blocked(_sum_steps, out, arrays, Scratch(), temporaries=1)
    for call in calls:
        call()
    np.testing.assert_allclose(out, sum(np.broadcast_to(array, shape) for array in arrays))


@settings(max_examples=100, deadline=None)
@given(operands(), st.integers(1, 30), st.integers(0, 2))
def test_split_covers_the_output_once_and_keeps_whole_rows(
    case: tuple[tuple[int, ...], list[Array]], elements: int, keep: int
) -> None:
    shape, arrays = case
    keep = min(keep, len(shape))
    visits = np.zeros(shape, np.int64)
    for out, *_ in split(visits, arrays, elements, keep):
        np.add(out, 1, out=out)
        assert out.shape[out.ndim - keep :] == shape[len(shape) - keep :]
    assert np.all(visits == 1)


def test_coalesce_merges_what_one_stride_walks() -> None:
    out = np.zeros((2, 3, 4, 5))
    channel = np.ones((3, 1, 1))
    scalar = np.ones((1, 1))
    assert [a.shape for a in coalesce(out, [out, scalar])] == [(120,), (120,), ()]
    assert [a.shape for a in coalesce(out, [channel])] == [(2, 3, 20), (2, 3, 20)]
    assert coalesce(out, [out], keep=1)[0].shape == (24, 5)


def test_float16_is_computed_in_float32() -> None:
    x = np.array([60000, 1, -3], np.float16)
    out = np.empty_like(x)

    def steps(out: Array, x: Array, square: Array) -> Iterator[Call]:
        assert x.dtype == out.dtype == square.dtype == np.float32
        yield partial(np.square, x, out=square)
        yield partial(np.sqrt, square, out=out)

    for call in blocked(steps, out, [x], Scratch(), temporaries=1):
        call()
    np.testing.assert_array_equal(out, np.abs(x))


def test_a_chain_of_one_step_is_one_call() -> None:
    x = np.zeros(1 << 20, np.float32)

    def steps(out: Array, x: Array) -> Iterator[Call]:
        yield partial(np.negative, x, out=out)

    assert len(blocked(steps, np.empty_like(x), [x], Scratch())) == 1
