"""Records whose operands are not what their numbers say: kernels refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, Record
from popc_runtime.native.program import NativeFailure
from popc_runtime.native.record import float_word, tensor_words
from popc_runtime.native.views import as_view
from tests.native.bindings import native_results, numpy_results

# What stands for an operand or a number of a record.
_Word: TypeAlias = "Array | int | float | None"
_Words: TypeAlias = "list[_Word]"


def _f(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _d(*shape: int) -> Array:
    return np.ones(shape, np.float64)


def _i(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


def _record(kernel: str, given: _Words) -> Record:
    words: list[int] = []
    for word in given:
        if isinstance(word, float):
            words.append(float_word(word))
        elif isinstance(word, int):
            words.append(word)
        else:
            words += tensor_words(as_view(word))
    return Record(kernel, tuple(words), tuple(given))


# An axis of a pool that has one element; states, lengths and results of a recurrent layer, and one
# direction's functions.
_ONE: Final = (1, 1, 1, 1, 1, 0, 0)
_STATES: Final = (_f(1, 2, 4), *[None] * 3, np.zeros(2, np.int32), _f(5, 1, 2, 4), *[None] * 4)
_PLAIN: Final = (1, 0.0, 0.0, 0.0) * 3

# Of each kernel a record that it takes, and what is put in the place of which of its words.
_CASES: Final[dict[str, tuple[_Words, list[tuple[int, _Word]]]]] = {
    "Determinant_f32": ([_f(2, 3, 3), _f(2)], [(1, _f(1)), (0, _f(2, 3, 4))]),
    "Inverse_f32": ([_f(2, 3, 3), _f(2, 3, 3)], [(1, _f(2)), (1, _f(1, 3, 3))]),
    "Fourier_f32": (
        [_f(2, 8, 1), _f(2, 5, 2), _f(8), 1, 8, 0, 1],
        [(1, _f(3, 5, 2)), (1, _f(2, 9, 2)), (0, _f(2, 8, 3)), (2, _f(7)), (1, _f(2, 5, 3))],
    ),
    "GroupNorm_f32": (
        [_f(2, 4, 3), _f(4), _f(4), _f(2, 4, 3), 2, 4, 3, 2, 1e-5],
        [(0, _f(2, 4, 2)), (1, _f(3)), (2, _f(5)), (3, _f(1, 4, 3)), (4, 3), (7, 3), (4, 1 << 62)],
    ),
    "BatchNorm_f32": (
        [_f(2, 4, 3), *(_f(4) for _ in range(4)), _f(2, 4, 3), 2, 4, 3, 1, 1e-5],
        [(4, _f(3)), (5, _f(2, 4, 2))],
    ),
    "LayerNorm_f64": (
        [_d(3, 4), _d(3, 4), 3, 4, 1, _d(4), _d(4), _d(3), _d(3), 1e-5],
        [(0, _f(3, 4)), (1, _d(3, 3)), (2, 4), (4, 2), (5, _d(3)), (7, _d(4)), (2, 1 << 62)],
    ),
    "GroupNorm_f64": (
        [_d(2, 4, 3), _d(4), _d(4), _d(2, 4, 3), 2, 4, 3, 2, 1e-5],
        [(0, _d(2, 4, 2)), (1, _d(3)), (2, _f(4)), (3, _d(1, 4, 3)), (4, 3), (7, 3), (7, 0)],
    ),
    "BatchNorm_f64": (
        [_d(2, 4, 3), *(_d(4) for _ in range(4)), _d(2, 4, 3), 2, 4, 3, 1, 1e-5],
        [(4, _d(3)), (5, _d(2, 4, 2)), (3, _f(4)), (9, 3)],
    ),
    "Lrn_f32": (
        [_f(2, 4, 3), _f(2, 4, 3), 2, 4, 3, 3, 1.0, 0.75, 1.0],
        [(1, _f(2, 4, 2)), (0, _i(2, 4, 3))],
    ),
    "TopK": (
        [_f(2, 5, 3), _f(2, 2, 3), _i(2, 2, 3), 2, 5, 3, 2, 1],
        [(1, _f(2, 1, 3)), (2, _i(2, 1, 3)), (2, _f(2, 2, 3)), (3, 3), (6, 6), (5, -3)],
    ),
    "Accumulate": (
        [_f(2, 5), _f(2, 5), 2, 5, 1, 0, 0, 0, None],
        [(1, _f(2, 4)), (2, 3), (8, _i(0)), (8, _f(1))],
    ),
    "ArgExtreme": ([_f(2, 5), _i(2), 2, 5, 1, 1, 0], [(1, _i(1)), (3, 6), (1, _f(2))]),
    "Rank": ([_f(5), _f(3), _i(5), 0], [(2, _i(4))]),
    "Rotary_f32": (
        [_f(2, 3, 4), _f(2, 3, 4), _f(2, 3, 2), _f(2, 3, 2), 0],
        [(1, _f(2, 3, 3)), (2, _f(2, 0, 2)), (2, _f(2, 2, 2)), (3, _f(2, 3, 1)), (3, _i(2, 3, 2))],
    ),
    "ReverseSequence": (
        [_f(3, 2, 4), _i(2), _f(3, 2, 4), 1],
        [(2, _f(3, 2, 3)), (2, np.zeros((3, 2, 4), np.int8)), (1, _i(3))],
    ),
    "StoreSteps": (
        [_f(2, 3, 5, 4), _f(2, 3, 2, 4), _i(2), 2, 3, 5, 2, 16, 0],
        [(1, _f(2, 3, 1, 4)), (0, _f(2, 3, 4, 4)), (7, 20), (4, -3), (2, _i(1))],
    ),
    "Unpool": (
        [_f(2, 3, 4, 4), _i(2, 3, 2, 2), _f(2, 3, 2, 2), 6],
        [
            (0, _d(2, 3, 4, 4)),
            (1, _i(2, 3, 2, 1)),
            (2, _f(2, 3, 2, 1)),
            (3, 5),
            (3, 0),
            (1, _f(24)),
        ],
    ),
    "Weave_f32": (
        [_f(2, 5, 5), 2, 1, _f(2, 3, 5), _f(2, 2, 5)],
        [(3, _f(2, 2, 5)), (4, _f(2, 2, 4)), (4, _i(2, 2, 5)), (1, 1 << 62)],
    ),
    "GridSample_f32": (
        [_f(2, 3, 4, 5), _f(2, 3, 3, 2), _f(2, 3, 3, 3), 1, 0, 0],
        [
            (1, _f(2, 3, 3, 1)),
            (2, _f(2, 2, 3, 3)),
            (2, _f(1, 3, 3, 3)),
            (3, 9),
            (0, _i(2, 3, 4, 5)),
        ],
    ),
    "DeformConv_f32": (
        [
            *(_f(2, 4, 5, 5), _f(6, 2, 2, 2), _f(2, 16, 4, 4), _f(6), _f(2, 8, 4, 4)),
            *(_f(2, 6, 4, 4), 2, 2, 1, 0, 1, 1, 0, 1),
        ],
        [
            *((0, _f(1, 4, 5, 5)), (0, _i(2, 4, 5, 5)), (1, _f(6, 4, 2, 2)), (1, _f(5, 2, 2, 2))),
            *((2, _f(2, 8, 4, 4)), (3, _f(5)), (4, _f(2, 4, 4, 4)), (5, _f(2, 5, 4, 4))),
            *((6, 0), (6, 3), (7, -1), (7, 3), (8, 1 << 40), (9, 1 << 61), (13, -1)),
        ],
    ),
    "Experts_f32": (
        [_f(3, 5, 4), _f(6, 4), _i(6), _f(3, 5), _f(6, 5)],
        [
            *((0, _f(3, 5, 3)), (0, _f(2, 5, 4)), (0, _f(15, 4)), (0, _i(3, 5, 4))),
            *((1, _f(5, 4)), (1, _f(6, 5)), (2, _i(5)), (2, _f(6)), (3, _f(3, 4))),
            *((4, _f(6, 4)), (4, _f(5, 5)), (4, _i(6, 5))),
        ],
    ),
    "RoiAlign_f32": (
        [_f(2, 3, 4, 5), _f(6, 4), _i(6), _f(6, 3, 2, 2), 1.0, 0.5, 0, 0, 0],
        [(1, _f(6, 3)), (2, _i(5)), (3, _f(7, 3, 2, 2)), (3, _f(6, 2, 2, 2)), (6, 1 << 61)],
    ),
    "MaxRoiPool_f32": (
        [_f(2, 3, 4, 5), _f(6, 5), None, _f(6, 3, 2, 2), 1.0],
        [(1, _f(6, 4)), (3, _f(6, 4, 2, 2))],
    ),
    "MaxPoolRows": (
        [_f(2, 3, 8), _f(2, 3, 4), _i(2, 3, 4), 2, 1, *_ONE, *_ONE, 8, 4, 2, 2, 1, 0, 1],
        [
            (1, _f(2, 3, 3)),
            (2, _i(2, 3, 3)),
            (2, _f(2, 3, 4)),
            *((4, channels) for channels in (-1, 0, 3, 1 << 61)),
            *((20, 9), (22, 0), (23, 0)),
        ],
    ),
    "Recurrent_f32": (
        [_f(5, 2, 3), _f(1, 4, 3), _f(1, 4, 4), _f(1, 8), *_STATES, 1, 0, 0, 0, 0, 0.0, *_PLAIN],
        [
            (1, _f(1, 4, 2)),
            (2, _f(1, 3, 4)),
            (3, _f(1, 7)),
            (4, _f(1, 2, 3)),
            (8, _i(2)),
            (9, _f(5)),
        ],
    ),
    "CopyRuns": (
        [_f(4, 3), _f(5, 3), _i(2), _i(2), _i(2)],
        [(1, _f(5, 2)), (1, np.zeros((5, 3), np.int8)), (3, _i(1))],
    ),
}


@pytest.mark.parametrize("kernel", list(_CASES))
def test_what_does_not_fit_is_refused(library: Library, kernel: str) -> None:
    words, lies = _CASES[kernel]
    NativeProgram(library, [_record(kernel, words)], None, 1)
    for place, lie in lies:
        wrong = [lie if index == place else word for index, word in enumerate(words)]
        with pytest.raises(NativeFailure, match="not supported"):
            NativeProgram(library, [_record(kernel, wrong)], None, 1)


def test_no_step_is_stored_unless_all_can_be(library: Library) -> None:
    cache, update = np.zeros((2, 1, 5, 4), np.float32), _f(2, 1, 2, 4)
    words: _Words = [cache, update, np.array([0, 4]), 2, 1, 5, 2, 16, 0]
    with pytest.raises(NativeFailure, match="index"):
        NativeProgram(library, [_record("StoreSteps", words)], None, 1).run()
    assert not cache.any()


@pytest.mark.parametrize("value", [0.01, 100.0])
def test_a_determinant_out_of_range_is_no_singular_matrix(library: Library, value: float) -> None:
    x = np.eye(200, dtype=np.float32) * np.float32(value)
    got = native_results(library, "Inverse", [x], [np.empty_like(x)], {})
    assert got is not None
    np.testing.assert_allclose(got[0], np.eye(200) / value, rtol=1e-6)
    x[3] = x[4]
    got = native_results(library, "Inverse", [x], [np.empty_like(x)], {})
    assert got is not None
    assert np.isnan(got[0]).all()


def _transforms(length: int) -> Callable[[Library], bool]:
    x, out = _f(1, length, 1), _f(1, length, 2)
    attributes = {"axis": 1, "dft_length": length, "inverse": 0, "onesided": 0}
    return lambda library: native_results(library, "DFT", [x], [out], attributes) is not None


def test_lengths_with_large_factors_are_left_to_numpy(library: Library) -> None:
    assert all(_transforms(length)(library) for length in (1, 61 * 4, 3 * 5 * 7))
    assert not any(_transforms(length)(library) for length in (67, 2 * 1009))


@pytest.mark.parametrize("far", [4e9, 1e20, 3e38])
def test_regions_far_larger_than_the_map(library: Library, far: float) -> None:
    x, regions = _f(1, 2, 4, 5), np.array([[0, 0, far, far]], np.float32)
    attributes = {
        "coordinate_transformation_mode": "half_pixel",
        "spatial_scale": 1.0,
        "sampling_ratio": 0,
        "mode": "avg",
    }
    inputs, out = [x, regions, _i(1)], _f(1, 2, 1, 1)
    got = native_results(library, "RoiAlign", inputs, [out], attributes)
    assert got is not None
    np.testing.assert_allclose(got[0], 0, atol=1e-15)
    if far < 1e10:
        expected = numpy_results("RoiAlign", inputs, [out], attributes)[0]
        np.testing.assert_allclose(got[0], expected, rtol=1e-5)
        assert (got[0] > 0).all()
