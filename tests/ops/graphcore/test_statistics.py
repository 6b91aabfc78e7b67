"""ai.graphcore: counts, ranks, bins, random masks, splines; judged by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from popc.frontend import Bindings, TrainingBindings, import_model, load_model
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_graph, run_ir, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(11)


def _run(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    outputs: int = 1,
) -> list[Array]:
    return run_op(op_type, inputs, attributes, outputs=outputs, domain=_DOMAIN)


# -- bins ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint32])
@pytest.mark.parametrize("right", [0, 1])
def test_bucketize(right: int, dtype: Any) -> None:
    x = np.array([[3, 6, 9], [1, 10, 140]], dtype)
    boundaries = np.array([1, 3, 5, 7, 9], dtype)
    (result,) = _run("Bucketize", [x, boundaries], {"right": right})
    compare = np.less_equal if right else np.less
    np.testing.assert_array_equal(result, compare(boundaries, x[..., None]).sum(-1))
    assert result.dtype == np.int32


def test_bucketize_numbers_that_are_none() -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    (result,) = _run("Bucketize", [x, np.array([0.0, 1.0], np.float32)])
    np.testing.assert_array_equal(result, [2, 2, 0])


_VALUES: Final = [-10, -0.1, 0.01, 0.09, 1.1, 4, 6.9, 7, 8.0, 900]


@pytest.mark.parametrize(("absolute", "expected"), [(0, [4, 1, 2, 3]), (1, [2, 2, 2, 4])])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_histogram(dtype: Any, absolute: int, expected: list[int]) -> None:
    attributes = {"levels": [0.1, 7, 3.1], "absoluteOfInput": absolute}
    (result,) = _run("Histogram", [np.array(_VALUES, dtype)], attributes)
    assert result.dtype == np.uint32
    np.testing.assert_array_equal(result, expected)


def test_histogram_of_many_strided_numbers() -> None:
    x = _RNG.standard_normal((301, 200)).astype(np.float32).T[::2]
    levels = np.linspace(-2, 2, 9, dtype=np.float32)
    (result,) = run_ir("BinCount", [x, levels], {"absolute": 0})
    edges = np.concatenate(([-np.inf], levels, [np.inf]))
    np.testing.assert_array_equal(result, np.histogram(x, edges)[0])


def test_histogram_as_tensorflow_has_it() -> None:
    x = np.array(_VALUES, np.float32)
    (levels,) = _run("FixedWidthBins", [x], {"n_bins": 5})
    np.testing.assert_allclose(levels, np.linspace(-10, 900, 5), rtol=1e-6)
    (counts,) = _run("Histogram", [x, levels])
    (more,) = _run("HistogramUpdate", [counts.astype(np.float32), x[:4], levels])
    np.testing.assert_array_equal(counts, [0, 9, 0, 0, 0, 1])
    np.testing.assert_array_equal(more, [0, 13, 0, 0, 0, 1])


# -- ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, (0,), (1,), (2, 1), (0, 2), (0, 1, 2)])
def test_median(axes: tuple[int, ...] | None, keepdims: int, dtype: Any) -> None:
    x = _RNG.permutation(3 * 4 * 5).reshape(3, 4, 5).astype(dtype)
    attributes: dict[str, Any] = {"keepdims": keepdims}
    if axes is not None:
        attributes["axes"] = list(axes)
    values, places = _run("ReduceMedian", [x], attributes, 2)
    over = sorted(axes or (0, 1, 2))
    kept = [axis for axis in range(3) if axis not in over]
    rows = x.transpose(*kept, *over).reshape(*(x.shape[axis] for axis in kept), -1)
    middle = np.sort(rows, axis=-1)[..., (rows.shape[-1] - 1) // 2]
    shape = tuple(1 if axis in over else dim for axis, dim in enumerate(x.shape))
    wanted = middle.reshape(shape if keepdims else middle.shape)
    assert (values.dtype, places.dtype.name) == (dtype, "int32")
    assert values.shape == places.shape == wanted.shape
    np.testing.assert_array_equal(values, wanted)
    chosen = np.take_along_axis(rows, places.reshape(*middle.shape, 1), -1)[..., 0]
    np.testing.assert_array_equal(chosen, middle)


@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_sort(axis: int, descending: int) -> None:
    x = _RNG.integers(0, 5, (4, 6)).astype(np.float32)
    values, places = _run("Sort", [x], {"axis": axis, "descending": descending}, 2)
    order = np.argsort(-x if descending else x, axis=axis, kind="stable")
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


# -- dropout ---------------------------------------------------------------------------------------


def _dropped(x: Array, attributes: Mapping[str, Any]) -> Array:
    """The result in training; otherwise there is none."""
    model = one_node_model("ShapedDropout", [x], attributes, domain=_DOMAIN)
    training = Bindings(training=TrainingBindings(lambda name, type_: False))
    return run_graph(import_model(load_model(model), training).graph, {"x0": x})[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shaped_dropout(dtype: Any) -> None:
    x = np.ones((40, 50, 3), dtype)
    result = _dropped(x, {"shape": [50, 1], "ratio": 0.25})
    assert result.dtype == dtype
    row = result[0, :, 0]
    np.testing.assert_array_equal(result, np.broadcast_to(row[None, :, None], x.shape))
    assert set(np.unique(row)) == {0, dtype(4 / 3)}
    assert 25 <= np.count_nonzero(row) < 50


def test_seeds_of_dropout_are_a_number_or_a_pair() -> None:
    x = np.ones((20, 20), np.float32)
    seeds = [7, [0, 7], [7, 0], [-1, 7], [2**31, 5]]
    first = [_dropped(x, {"seed": seed}) for seed in seeds]
    again = [_dropped(x, {"seed": seed}) for seed in seeds]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[0], first[1])  # a pair is one number of 64 bits
    assert len({array.tobytes() for array in first}) == len(seeds) - 1
    with pytest.raises(ModelError, match="a whole number or two of 32 bits"):
        _dropped(x, {"seed": [1, 2, 3]})


def test_dropout_without_a_shape_or_a_ratio() -> None:
    x = np.ones((100, 100), np.float32)
    assert 4500 < np.count_nonzero(_dropped(x, {})) < 5500
    np.testing.assert_array_equal(_dropped(x, {"ratio": 0.0}), x)
    np.testing.assert_array_equal(_run("ShapedDropout", [x])[0], x)


# -- splines ---------------------------------------------------------------------------------------


def _spline(degree: int, v: float) -> float:
    """The cardinal B-spline on [0, degree + 1] by its recursion."""
    if degree == 0:
        return float(0 <= v < 1)
    left, right = _spline(degree - 1, v), _spline(degree - 1, v - 1)
    return (v * left + (degree + 1 - v) * right) / degree


def _basis(places: Array, sizes: Array, opened: Array, degree: int) -> tuple[Array, Array]:
    edges, dimensions = places.shape
    count = (degree + 1) ** dimensions
    basis, kernels = np.zeros((edges, count)), np.zeros((edges, count), np.int64)
    for edge in range(edges):
        for number, steps in enumerate(product(range(degree + 1), repeat=dimensions)):
            value, kernel, stride = 1.0, 0, 1
            for place, size, is_open, step in zip(
                places[edge], sizes, opened, steps[::-1], strict=True
            ):
                v = place * (size - degree * int(is_open))
                value *= _spline(degree, v - np.floor(v) + degree - step)
                kernel += (int(v) + step) % size * stride
                stride *= size
            basis[edge, number], kernels[edge, number] = value, kernel
    return basis, kernels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spline_basis(degree: int, dimensions: int, dtype: Any) -> None:
    places = _RNG.uniform(0, 1, (7, dimensions)).astype(dtype)
    sizes = _RNG.integers(degree + 1, 7, dimensions).astype(np.int32)
    opened = _RNG.integers(0, 2, dimensions).astype(np.uint8)
    basis, kernels = _run("SplineBasis", [places, sizes, opened], {"degree": degree}, 2)
    expected = _basis(places.astype(np.float64), sizes, opened, degree)
    assert (basis.dtype, kernels.dtype.name) == (dtype, "int32")
    np.testing.assert_allclose(basis, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(kernels, expected[1])
    np.testing.assert_allclose(basis.sum(1), 1, rtol=1e-5)


def test_splines_that_are_nearly_zero_are_exact() -> None:
    """Those that end at the next knot, and so begin to be zero."""
    places = np.array([[0.9], [0.99], [0.999]], np.float32)
    sizes, closed = np.array([1]), np.array([0], np.uint8)
    basis, _ = _run("SplineBasis", [places, sizes, closed], {"degree": 3}, 2)
    np.testing.assert_allclose(basis[:, 0], (1 - places[:, 0].astype(np.float64)) ** 3 / 6, 1e-5)


@pytest.mark.parametrize("edges", [0, 5, 3000])
def test_spline_weighting(edges: int) -> None:
    x = _RNG.standard_normal((edges, 6)).astype(np.float32)
    weights = _RNG.standard_normal((25, 6, 4)).astype(np.float32)
    basis = _RNG.uniform(0, 1, (edges, 4)).astype(np.float32)
    kernels = _RNG.integers(0, 25, (edges, 4)).astype(np.int32)
    (result,) = _run("SplineWeighting", [x, weights, basis, kernels])
    expected = np.einsum("es,ei,esio->eo", basis, x, weights[kernels])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_kernel_numbers_must_be_in_range() -> None:
    x, weights = np.ones((1, 2), np.float32), np.ones((3, 2, 1), np.float32)
    for number in (3, -1):
        with pytest.raises(IndexError):
            _run("SplineWeighting", [x, weights, x[:, :1], np.array([[number]], np.int32)])


_PLACES: Final = np.zeros((4, 2), np.float32)
_TWO: Final = np.array([3, 3], np.int32)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Bucketize", [_PLACES, _TWO], {}, "one element type"),
        ("Bucketize", [_PLACES, _PLACES], {}, "boundaries must have 1 dimensions"),
        ("Bucketize", [_PLACES, _PLACES[0]], {"right": 2}, "right must be 0 or 1"),
        ("Histogram", [_PLACES], {}, "attribute 'levels' is required"),
        ("Histogram", [_TWO], {"levels": [1.0]}, "int32 is not allowed"),
        ("FixedWidthBins", [_PLACES], {"n_bins": 0}, "there cannot be 0 bins"),
        ("ReduceMedian", [_PLACES], {"axes": [2]}, "axis 2 is out of range"),
        ("ShapedDropout", [_PLACES], {"shape": [3, 2]}, "do not broadcast"),
        ("ShapedDropout", [_PLACES], {"shape": [5, 4, 2]}, "does not broadcast"),
        ("ShapedDropout", [_PLACES], {"ratio": 1.0}, "the ratio must be in"),
        ("SplineBasis", [_PLACES, _TWO, _TWO], {"degree": 4}, "degree 0 to 3"),
        ("SplineBasis", [_PLACES, _TWO[:1], _TWO], {"degree": 1}, "must be 2 integers"),
        ("SplineWeighting", [_PLACES] * 4, {}, "weights must have 3 dimensions"),
    ],
)
def test_wrong_operands_and_attributes_are_refused(
    op_type: str, inputs: list[Array], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model(op_type, inputs, attributes, domain=_DOMAIN))
