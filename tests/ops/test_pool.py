from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array, Attribute
from tests.support.oracles import assert_matches_onnxruntime, one_node_model, run_ir, run_op

_RNG = np.random.default_rng(13)


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _small_integers(*shape: int, dtype: Any = np.float32) -> Array:
    """Values with many ties."""
    return _RNG.integers(0, 4, shape).astype(dtype)


@st.composite
def _pools(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of an input, and the attributes of a window over it."""
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    sizes = [draw(st.integers(k, 11)) for k in kernel]
    if draw(st.booleans()):  # around each element
        pads = [(k - 1) // 2 for k in kernel] + [k // 2 for k in kernel]
        return (2, 3, *sizes), {"kernel_shape": kernel, "pads": pads}
    attributes = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in kernel],
        "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2],
        "ceil_mode": draw(st.integers(0, 1)),
    }
    room = [(size - 1) // max(k - 1, 1) for size, k in zip(sizes, kernel, strict=True)]
    attributes["dilations"] = [draw(st.integers(1, 2 if most > 1 else 1)) for most in room]
    return (2, 3, *sizes), attributes


@settings(max_examples=50, deadline=None)
@given(_pools(), st.booleans())
def test_any_average_pool(pool: tuple[tuple[int, ...], dict[str, Any]], include: bool) -> None:  # noqa: FBT001
    shape, attributes = pool
    attributes = attributes | {"count_include_pad": int(include)}
    assert_matches_onnxruntime("AveragePool", [_random(*shape)], attributes, rtol=1e-4, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(_pools(), st.integers(1, 2), st.integers(0, 1))
def test_any_max_pool(
    pool: tuple[tuple[int, ...], dict[str, Any]], outputs: int, storage_order: int
) -> None:
    shape, attributes = pool
    attributes = attributes | {"storage_order": storage_order if outputs == 2 else 0}
    assert_matches_onnxruntime("MaxPool", [_small_integers(*shape)], attributes, outputs=outputs)


@settings(max_examples=30, deadline=None)
@given(_pools(), st.integers(1, 3))
def test_any_lp_pool(pool: tuple[tuple[int, ...], dict[str, Any]], p: int) -> None:
    shape, attributes = pool
    assert_matches_onnxruntime("LpPool", [_random(*shape)], attributes | {"p": p}, rtol=1e-4)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("sizes", [(7, 8), (4, 5), (2, 2)])
def test_rounding_up_beside_automatic_padding(
    op_type: str, auto_pad: str, sizes: tuple[int, ...]
) -> None:
    attributes = {
        "kernel_shape": [2, 2],
        "strides": [3, 2],
        "auto_pad": auto_pad,
        "ceil_mode": 1,
    }
    assert_matches_onnxruntime(op_type, [_small_integers(1, 2, *sizes)], attributes, rtol=1e-6)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("sizes", "stride"), [((2, 5), 2), ((1, 2), 3), ((4, 1), 3)])
def test_first_window_reaches_beyond_the_end(
    op_type: str, sizes: tuple[int, ...], stride: int
) -> None:
    attributes = {"kernel_shape": [3, 3], "strides": [stride, stride], "ceil_mode": 1}
    assert_matches_onnxruntime(op_type, [_random(2, 3, *sizes)], attributes, rtol=1e-4)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad(op_type: str, auto_pad: str, stride: int) -> None:
    attributes = {"kernel_shape": [4, 3], "strides": [stride, stride], "auto_pad": auto_pad}
    assert_matches_onnxruntime(op_type, [_random(1, 2, 10, 11)], attributes, rtol=1e-4)


@pytest.mark.parametrize(
    ("op_type", "opsets"),
    [("MaxPool", [1, 8, 10, 12, 22]), ("AveragePool", [7, 10, 19]), ("LpPool", [2, 11, 18])],
)
def test_opsets(op_type: str, opsets: list[int]) -> None:
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for opset in opsets:
        x = _random(1, 2, 6, 7)
        assert_matches_onnxruntime(op_type, [x], attributes, opset=opset, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint8])
def test_max_pool_dtypes(dtype: Any) -> None:
    x = (10 * _random(1, 3, 8, 9)).astype(dtype)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}
    assert_matches_onnxruntime("MaxPool", [x], attributes, opset=12)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=x.min())
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    (actual,) = run_op("MaxPool", [x], attributes, opset=12)
    np.testing.assert_array_equal(actual, windows[:, :, ::2].max(axis=(-1, -2)))


def test_average_pool_float16_sums_in_float32() -> None:
    x = np.full((1, 1, 64, 64), 100, np.float16)
    (actual,) = run_ir("AveragePool", [x], {"kernel_shape": (64, 64)})
    assert actual.dtype == np.float16
    assert actual.item() == 100


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attributes", [{"pads": (1, 1, 1, 1)}, {"strides": (2, 2)}])
def test_strided_and_large_inputs(op_type: str, attributes: dict[str, Attribute]) -> None:
    attributes = {"kernel_shape": (3, 3), **attributes}
    nhwc = _random(2, 60, 61, 10).transpose(0, 3, 1, 2)
    for view in (nhwc, nhwc[:, ::2, 5:], np.broadcast_to(nhwc[:, :1], nhwc.shape)):
        (wanted,) = run_op(op_type, [np.ascontiguousarray(view)], attributes)
        (actual,) = run_ir(op_type, [view], attributes)
        np.testing.assert_allclose(actual, wanted, atol=1e-6)


def test_infinities_and_indices() -> None:
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    attributes: dict[str, Attribute] = {"kernel_shape": (2, 2), "strides": (2, 2), "indices": 1}
    values, indices = run_ir("MaxPool", [x], attributes)
    assert (values == -np.inf).all()
    np.testing.assert_array_equal(indices.ravel(), [0, 2, 8, 10])


def test_unpool_reverses_pool() -> None:
    x = _random(2, 3, 6, 8)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    values, indices = run_op("MaxPool", [x], window, outputs=2)
    (actual,) = run_op("MaxUnpool", [values, indices], window)
    assert actual.shape == x.shape
    kept = np.zeros(x.size, bool)
    kept[indices.ravel()] = True
    np.testing.assert_array_equal(actual.ravel(), np.where(kept, x.ravel(), 0))
    assert_matches_onnxruntime("MaxUnpool", [values, indices], window)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_unpool_to_larger_shape_as_in_onnx(dtype: npt.DTypeLike) -> None:
    """ONNX's test of an output shape: indices count over the 4 x 4 that the window gives.

    onnxruntime (1.32) lets them count over the 5 x 5 of the output shape, in every element type.
    """
    x = np.array([[[[5, 6], [7, 8]]]], dtype)
    indices = np.array([[[[5, 7], [13, 15]]]])
    shape = np.array([1, 1, 5, 5], np.int64)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    (actual,) = run_op("MaxUnpool", [x, indices, shape], window, constants={2})
    model = one_node_model("MaxUnpool", [x, indices, shape], window)
    feeds = {"x0": x, "x1": indices, "x2": shape}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == dtype


def test_unpool_to_larger_shape() -> None:
    x, indices = np.ones((1, 1, 2, 2), np.float32), np.array([0, 3, 9, 14]).reshape(1, 1, 2, 2)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    shape = np.array([1, 1, 5, 6], np.int64)
    (actual,) = run_op("MaxUnpool", [x, indices, shape], window, constants={2})
    wanted = np.zeros((1, 1, 5, 6), np.float32)
    wanted[0, 0, [0, 0, 2, 3], [0, 3, 1, 2]] = 1
    np.testing.assert_array_equal(actual, wanted)
    with pytest.raises(DataDependentShapeError):
        run_op("MaxUnpool", [x, indices, shape], window)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 6), (1, 2, 3, 4, 5)])
def test_global_pools(shape: tuple[int, ...]) -> None:
    x = _random(*shape)
    axes = tuple(range(2, len(shape)))
    wanted = {
        "GlobalAveragePool": x.mean(axes, keepdims=True),
        "GlobalMaxPool": x.max(axes, keepdims=True),
    }
    for op_type, result in wanted.items():
        np.testing.assert_allclose(run_op(op_type, [x])[0], result, rtol=1e-5, atol=1e-6)
    for p in (1, 2, 3):
        norm = (np.abs(x) ** p).sum(axes, keepdims=True) ** (1 / p)
        (actual,) = run_op("GlobalLpPool", [x], {"p": p})
        np.testing.assert_allclose(actual, norm, rtol=1e-5)


def test_empty() -> None:
    for op_type in ("MaxPool", "AveragePool", "LpPool"):
        for shape in ((0, 2, 4, 4), (2, 0, 4, 4)):
            (actual,) = run_op(op_type, [_random(*shape)], {"kernel_shape": [2, 2]})
            assert actual.shape == (*shape[:2], 3, 3)


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("MaxPool", {"kernel_shape": [2]}, "for 2 spatial axes"),
        ("MaxPool", {"kernel_shape": [0, 2]}, "does not fit"),
        ("AveragePool", {"kernel_shape": [9, 2]}, "fewer than the 9"),
        ("LpPool", {"kernel_shape": [2, 2], "p": 0}, "must be a positive"),
        ("GlobalLpPool", {"p": 0}, "must be a positive"),
    ],
)
def test_windows_that_do_not_fit_are_refused(
    op_type: str, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        run_op(op_type, [_random(1, 2, 5, 5)], attributes)
    assert message in str([caught.value.message, *caught.value.details])


def test_unpool_refuses_indices_that_do_not_fit() -> None:
    x = _random(1, 2, 3, 3)
    with pytest.raises(ModelError, match="the indices are"):
        run_ir("MaxUnpool", [x, np.zeros((1, 2, 3), np.int64)], {"shape": (1, 2, 6, 6)})
    with pytest.raises(ModelError, match="cannot be unpooled"):
        run_ir("MaxUnpool", [x, np.zeros(x.shape, np.int64)], {"shape": (1, 3, 6, 6)})
