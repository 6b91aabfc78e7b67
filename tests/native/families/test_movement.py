"""Elements that move to places that are known: what native kernels write is what numpy writes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array, DType
from popc_runtime.kernels.parts.borders import border_runs
from popc_runtime.native import Library, find_library
from tests.native.bindings import bound, encode, native_results, numpy_results

MOVED: Final = frozenset(
    {
        *("BitCast", "Boundary", "Concat", "Copy", "Detach", "Expand", "IoTileCopy", "IpuCopy"),
        *("Pad", "RemoteLoad", "RemoteStore", "Reshape", "Slice", "Split", "Tile", "Transpose"),
    }
)
_Shapes = list[tuple[int, ...]]
_Case = tuple[str, _Shapes, _Shapes, dict[str, Any]]
_HOPS: list[_Case] = [
    ("Slice", [(99,)], [(n,)], {"starts": (1,), "steps": (98 // n,)}) for n in (49, 32, 24, 9)
]
_CASES: list[_Case] = [
    ("Boundary", [(4, 5)], [(4, 5)], {}),
    ("Detach", [(4, 5)], [(4, 5)], {}),
    ("IoTileCopy", [(4, 5)], [(4, 5)], {}),
    ("RemoteLoad", [(6,), (2, 3)], [(6,), (2, 3)], {}),
    ("RemoteStore", [(6,), (2, 3)], [(6,), (2, 3)], {}),
    ("Copy", [()], [()], {}),
    ("IpuCopy", [(3, 1)], [(3, 1)], {}),
    ("Reshape", [(4, 6)], [(2, 3, 4)], {"shape": (2, 3, 4)}),
    ("Transpose", [(5, 6, 7)], [(7, 5, 6)], {"perm": (2, 0, 1)}),
    ("Transpose", [(70, 90)], [(90, 70)], {"perm": (1, 0)}),
    ("Transpose", [(2, 3, 1, 4, 2, 2)], [(3, 2, 4, 2, 1, 2)], {"perm": (1, 0, 3, 5, 2, 4)}),
    ("Concat", [(2, 3, 4), (2, 5, 4)], [(2, 8, 4)], {"axis": 1}),
    ("Concat", [(2, 3), (0, 3), (1, 3)], [(3, 3)], {"axis": 0}),
    ("Split", [(6, 4)], [(2, 4), (1, 4), (3, 4)], {"axis": 0, "split": (2, 1, 3)}),
    ("Slice", [(9, 8)], [(3, 4)], {"starts": (8, 1), "steps": (-3, 2)}),
    ("Slice", [(9,)], [(9,)], {"starts": (8,), "steps": (-1,)}),
    *_HOPS,
    ("Expand", [(3, 1, 5)], [(2, 3, 4, 5)], {"shape": (2, 3, 4, 5)}),
    ("Tile", [(3, 5)], [(6, 15)], {"repeats": (2, 3)}),
    ("Tile", [(1, 1, 4)], [(3, 2, 4)], {"repeats": (3, 2, 1)}),
    ("Pad", [(3, 5)], [(6, 6)], {"pads": (1, 0, 2, 1), "mode": "reflect"}),
    ("Pad", [(3, 5)], [(9, 12)], {"pads": (4, 3, 2, 4), "mode": "wrap"}),
    ("Pad", [(3, 5)], [(5, 4)], {"pads": (1, -2, 1, 1), "mode": "edge"}),
    ("Pad", [(3, 5)], [(5, 7)], {"pads": (1, 0, 1, 2), "mode": "constant", "value": 3}),
]  # fmt: skip


def _numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    return (100 * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def _strided(array: Array) -> Array:
    """The same elements, every other of the last dimension of wider memory."""
    if array.ndim == 0:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64", "bool"])
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("opcode", "shapes", "results", "attributes"), _CASES)
def test_moves(
    library: Library,
    opcode: str,
    shapes: _Shapes,
    results: _Shapes,
    attributes: dict[str, Any],
    *,
    strided: bool,
    dtype: str,
) -> None:
    inputs = [_numbers(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    if strided:
        inputs = [_strided(operand) for operand in inputs]
    outputs = [np.empty(shape, dtype) for shape in results]
    expected = numpy_results(opcode, inputs, outputs, attributes)
    got = native_results(library, opcode, inputs, outputs, attributes)
    assert got is not None
    assert [item.tobytes() for item in got] == [item.tobytes() for item in expected]


def test_parts_that_nobody_wants(library: Library) -> None:
    x = _numbers((6, 4), "float32", 0)
    outputs: list[Any] = [None, np.empty((4, 4), np.float32)]
    binding = bound([x], outputs, {"axis": 0, "split": (2, 4)})
    assert encode("Split", binding, library.numbers) is not None


def test_bits_under_another_type(library: Library) -> None:
    x = _numbers((5, 3), "float32", 0)
    got = native_results(library, "BitCast", [x], [np.empty((5, 3), np.int32)], {})
    assert got is not None
    assert got[0].tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("dtype", "value", "fills"),
    [
        *((DType.FLOAT16, value, True) for value in (0, 2.5, -7, float("inf"), float("nan"))),
        *((DType.FLOAT16, value, True) for value in (1e9, -1e9)),  # more than it holds: infinite
        *((DType.UINT8, value, True) for value in (0, 2.5)),
        (DType.BFLOAT16, 0, True),
        *((DType.BFLOAT16, value, False) for value in (2.5, 1e9, float("nan"))),  # to be rounded
    ],
)
def test_numbers_to_fill_with(library: Library, dtype: DType, value: float, *, fills: bool) -> None:
    x, out = np.ones(3, dtype.storage), np.empty(5, dtype.storage)
    attributes = {"pads": (1, 1), "mode": "constant", "value": value}
    with np.errstate(all="ignore"):
        expected = numpy_results("Pad", [x], [out], attributes, dtypes=[dtype, dtype])
    got = native_results(library, "Pad", [x], [out], attributes, dtypes=[dtype, dtype])
    assert (got is not None) == fills
    if got is not None:
        assert got[0].tobytes() == expected[0].tobytes()


def test_numbers_to_fill_with_that_are_operands(library: Library) -> None:
    inputs = [_numbers((3, 4), "float32", 0), np.array(7, np.float32)]
    attributes = {"pads": (1, 0, 0, 2), "mode": "constant"}
    out = np.empty((4, 6), np.float32)
    expected = numpy_results("Pad", inputs, [out], attributes)
    got = native_results(library, "Pad", inputs, [out], attributes)
    assert got is not None
    assert got[0].tobytes() == expected[0].tobytes()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.integers(0, 6)), max_size=3),
    st.sampled_from(["constant", "edge", "reflect", "wrap"]),
)
def test_borders_of_any_size(axes: list[tuple[int, int, int]], mode: str) -> None:
    library = find_library()
    if library is None:
        pytest.skip("no native library")
    x = _numbers(tuple(dim for dim, _, _ in axes), "int32", 0)
    pads = (*(axis for _, axis, _ in axes), *(axis for _, _, axis in axes))
    out = np.empty([sum(axis) for axis in axes], np.int32)
    got = native_results(library, "Pad", [x], [out], {"pads": pads, "mode": mode})
    widths = [(begin, end) for _, begin, end in axes]
    expected = np.pad(x, widths, mode=mode) if axes else x  # type: ignore[call-overload]
    assert got is not None
    assert np.array_equal(got[0], expected)


def test_runs_of_borders() -> None:
    assert border_runs("reflect", 2, 5, 7) == [
        (slice(0, 2), slice(4, 2, -1)),
        (slice(5, 7), slice(3, 1, -1)),
    ]
    assert border_runs("edge", 1, 3, 5) == [
        (slice(0, 1), slice(1, 2, 1)),
        (slice(3, 5), slice(2, 3)),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("exponent", [-1, 0, 1, 2, 3, 0.5, 2.5])
def test_powers_that_are_known(library: Library, dtype: str, exponent: float) -> None:
    x = (np.abs(_numbers((3, 50), dtype, 1)) + 1) % 10
    inputs, out = [x.astype(dtype), np.array([exponent], dtype)], np.empty_like(x)
    got = native_results(library, "Pow", inputs, [out], {}, (1,))
    if got is None:  # numpy's calls are moves, or two passes
        assert exponent in (0, 1, 3)
        return
    expected = numpy_results("Pow", inputs, [out], {}, (1,))
    np.testing.assert_allclose(got[0], expected[0], rtol=2e-3 if dtype == "float16" else 1e-6)
