"""Normalisation, against onnxruntime and numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute
from tests.support.oracles import (
    assert_matches_onnxruntime,
    import_graph,
    one_node_model,
    run_ir,
    run_op,
)

_CONSTANT = pytest.mark.parametrize("constant", [False, True])


def _values(*shape: int, dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _batch_operands(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> list[Array]:
    channels = shape[1] if len(shape) > 1 else 1
    parameters = [_values(channels, dtype=dtype, seed=seed) for seed in range(1, 5)]
    return [_values(*shape, dtype=dtype), *parameters[:3], np.abs(parameters[3])]


# -- BatchNormalization ----------------------------------------------------------------------------


@_CONSTANT
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (2, 3, 4), (2, 3, 4, 5, 2)])
def test_batch_normalization(opset: int, shape: tuple[int, ...], *, constant: bool) -> None:
    assert_matches_onnxruntime(
        "BatchNormalization",
        _batch_operands(shape),
        {"epsilon": 1e-2},
        opset=opset,
        constants=range(1, 5) if constant else (),
    )


def test_batch_normalization_before_opset_7() -> None:
    operands = _batch_operands((2, 3, 4))
    attributes = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}
    (actual,) = run_op("BatchNormalization", operands, attributes, opset=1)
    (expected,) = run_op("BatchNormalization", operands, opset=9)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("opset", [6, 7])
def test_batch_normalization_of_each_element(opset: int) -> None:
    x, *parameters = _batch_operands((5, 12))
    inputs = [x.reshape(5, 3, 4), *(item.reshape(3, 4) for item in parameters)]
    attributes = {"spatial": 0, "is_test": 1} if opset < 7 else {"spatial": 0}
    (actual,) = run_op("BatchNormalization", inputs, attributes, opset=opset)
    (expected,) = run_op("BatchNormalization", [x, *parameters], opset=9)
    np.testing.assert_array_equal(actual, expected.reshape(5, 3, 4))


@pytest.mark.parametrize("shape", [(4, 3, 2, 5), (7, 3)])
def test_batch_normalization_training(shape: tuple[int, ...]) -> None:
    attributes = {"training_mode": 1, "momentum": 0.7}
    assert_matches_onnxruntime(
        "BatchNormalization", _batch_operands(shape), attributes, opset=15, outputs=3, rtol=1e-4
    )


def test_batch_normalization_training_by_outputs() -> None:
    operands = _batch_operands((4, 3, 5))
    old = run_op("BatchNormalization", operands, opset=9, outputs=5)
    new = run_op("BatchNormalization", operands, {"training_mode": 1}, opset=15, outputs=3)
    for a, b in zip(old, new, strict=False):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(old[3], operands[0].mean((0, 2)), atol=1e-6)
    np.testing.assert_allclose(old[4], operands[0].var((0, 2)), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 3e-3), (np.float64, 1e-12)])
def test_batch_normalization_dtypes(dtype: npt.DTypeLike, rtol: float) -> None:
    operands = _batch_operands((2, 3, 70, 300), dtype)
    (actual,) = run_op("BatchNormalization", operands, opset=15, constants=range(1, 5))
    x, scale, bias, mean, variance = (
        item.astype(np.float64).reshape(-1, 1, 1) if item.ndim == 1 else item.astype(np.float64)
        for item in operands
    )
    expected = (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol)


def test_batch_normalization_of_mixed_types_in_half_precision() -> None:
    x, *parameters = _batch_operands((2, 3, 4))
    half = [x.astype(np.float16), *parameters]
    (actual,) = run_op("BatchNormalization", half, opset=15)
    assert actual.dtype == np.float16
    (expected,) = run_op("BatchNormalization", [x, *parameters], opset=15)
    np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-3)


def test_batch_normalization_stays_one_op_for_fusions() -> None:
    model = one_node_model(
        "BatchNormalization", _batch_operands((2, 3, 4, 4)), opset=15, constants=range(1, 5)
    )
    from popc.frontend.model import Bindings

    graph = import_graph(model, Bindings(shapes={"x0": (2, 3, 4, 4)}))
    assert [op.op_type for op in graph.ops] == ["BatchNormalization"]


# -- InstanceNormalization, GroupNormalization -----------------------------------------------------


@_CONSTANT
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 7), (1, 4, 300, 300), (3, 90, 40, 40)])
def test_instance_normalization(shape: tuple[int, ...], *, constant: bool) -> None:
    inputs = [_values(*shape) + 10, _values(shape[1], seed=1), _values(shape[1], seed=2)]
    assert_matches_onnxruntime(
        "InstanceNormalization",
        inputs,
        {"epsilon": 1e-3},
        opset=7,
        constants=(1, 2) if constant else (),
        rtol=1e-4,
        atol=5e-5,
    )


@_CONSTANT
@pytest.mark.parametrize(
    ("opset", "parameters", "dtype"),
    [(18, 2, np.float32), (21, 6, np.float32), (21, 6, np.float16), (21, 6, np.float64)],
)
def test_group_normalization(
    opset: int, parameters: int, dtype: npt.DTypeLike, *, constant: bool
) -> None:
    x, scale, bias = _values(2, 6, 4, 5), _values(parameters, seed=1), _values(parameters, seed=2)
    grouped = x.astype(np.float64).reshape(2, 2, 3, 4, 5)
    mean, deviation = (f(grouped, (2, 3, 4), keepdims=True) for f in (np.mean, np.std))
    normal = ((grouped - mean) / np.sqrt(deviation**2 + 1e-5)).reshape(x.shape)
    per_channel = [np.repeat(item, 6 // parameters)[:, None, None] for item in (scale, bias)]
    (actual,) = run_op(
        "GroupNormalization",
        [x.astype(dtype), scale.astype(dtype), bias.astype(dtype)],
        {"num_groups": 2},
        opset=opset,
        constants=(1, 2) if constant else (),
    )
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    expected = normal * per_channel[0] + per_channel[1]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------


@_CONSTANT
@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 5), (300, 3, 80)])
def test_layer_normalization(
    axis: int, shape: tuple[int, ...], *, bias: bool, constant: bool
) -> None:
    inputs = [_values(*shape) + 100, _values(*shape[axis:], seed=1)]
    inputs += [_values(*shape[axis:], seed=2)] * bias
    assert_matches_onnxruntime(
        "LayerNormalization",
        inputs,
        {"axis": axis, "epsilon": 1e-3},
        opset=17,
        outputs=3,
        constants=range(1, len(inputs)) if constant else (),
        rtol=1e-3,
        atol=1e-4,
    )


@_CONSTANT
@pytest.mark.parametrize("scale", [(5,), (1, 5), (3, 1), (1,), (2, 1, 1), (2, 3, 5), ()])
@pytest.mark.parametrize("axis", [1, 2])
def test_layer_normalization_broadcasts_scale(
    scale: tuple[int, ...], axis: int, *, constant: bool
) -> None:
    x, factor, shift = _values(2, 3, 5), _values(*scale, seed=1), _values(*scale, seed=2)
    axes = tuple(range(axis, 3))
    normal = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    constants = (1, 2) if constant else ()
    attributes = {"axis": axis}
    (actual,) = run_op(
        "LayerNormalization", [x, factor, shift], attributes, opset=17, constants=constants
    )
    np.testing.assert_allclose(actual, normal * factor + shift, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 4e-3), (np.float64, 1e-12), (ml_dtypes.bfloat16, 3e-2)]
)
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_last_axis_dtypes(op_type: str, dtype: Any, rtol: float) -> None:
    inputs = [_values(50, 40).astype(dtype), _values(40, seed=1).astype(dtype)]
    (actual,) = run_op(op_type, inputs, opset=23)
    x, scale = (item.astype(np.float64) for item in inputs)
    if op_type == "LayerNormalization":
        x -= x.mean(-1, keepdims=True)
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol)


@_CONSTANT
@pytest.mark.parametrize("axis", [-1, 0])
def test_rms_normalization(axis: int, *, constant: bool) -> None:
    x = _values(3, 4, 5)
    inputs = [x, _values(*x.shape[axis:], seed=1)]
    constants = (1,) if constant else ()
    assert_matches_onnxruntime(
        "RMSNormalization", inputs, {"axis": axis}, opset=23, constants=constants
    )


@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_strided_operand_of_last_axis(op_type: str) -> None:
    x = _values(6, 5, 4).T[::-1, :, ::2]
    attributes: dict[str, Attribute] = {"axis": 1, "epsilon": 1e-5, "stash_type": "float32"}
    scale = _values(5, 3)
    actual = run_ir(op_type, [x, scale], attributes)[0]
    expected = run_ir(op_type, [x.copy(), scale], attributes)[0]
    np.testing.assert_array_equal(actual, expected)


# -- LRN, MeanVarianceNormalization ----------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("beta", [0.75, 0.5])
@pytest.mark.parametrize("shape", [(2, 7, 3, 4), (1, 20, 90, 70)])
def test_lrn(size: int, beta: float, shape: tuple[int, ...]) -> None:
    x = _values(*shape) * 10
    squares = np.zeros(shape)
    for channel in range(shape[1]):
        first = max(0, channel - (size - 1) // 2)
        last = min(shape[1], channel + size // 2 + 1)
        squares[:, channel] = (x[:, first:last].astype(np.float64) ** 2).sum(1)
    attributes = {"size": size, "alpha": 0.1, "beta": beta, "bias": 1.5}
    (actual,) = run_op("LRN", [x], attributes, opset=13)
    np.testing.assert_allclose(actual, x / (1.5 + 0.1 / size * squares) ** beta, rtol=1e-5)


def test_lrn_in_half_precision() -> None:
    x = _values(1, 6, 5, dtype=np.float16)
    (actual,) = run_op("LRN", [x], {"size": 3}, opset=13)
    (expected,) = run_op("LRN", [x.astype(np.float32)], {"size": 3}, opset=13)
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("axes", [None, [1, 2]])
def test_mean_variance_normalization(opset: int, axes: list[int] | None) -> None:
    attributes = {} if axes is None else {"axes": axes}
    assert_matches_onnxruntime(
        "MeanVarianceNormalization", [_values(3, 4, 5, 6)], attributes, opset=opset, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_mean_variance_normalization_in_any_type(dtype: type) -> None:
    """Rows of equal elements, whose variance is 0 however their squares round, and others."""
    rows: Array = np.linspace(0.1, 3.3, 7, dtype=dtype).reshape(1, 7, 1)
    equal: Array = np.broadcast_to(rows, (5, 7, 9))
    x = np.concatenate([equal, 3 + _values(5, 7, 9).astype(dtype)], axis=1)
    (actual,) = run_op("MeanVarianceNormalization", [x], {"axes": [0, -1]}, opset=13)
    wide = x.astype(np.float64)
    deviation = wide.std(axis=(0, 2), keepdims=True)
    expected = (wide - wide.mean(axis=(0, 2), keepdims=True)) / (deviation + 1e-9)
    assert actual.dtype == dtype
    assert np.abs(actual[:, 7:] - expected[:, 7:]).max() < 8 * np.finfo(dtype).eps
    assert np.abs(actual[:, :7]).max() <= 1


# -- shapes ----------------------------------------------------------------------------------------


def test_no_elements() -> None:
    parameters = [np.ones(3, np.float32)] * 4
    for op_type, count in (("BatchNormalization", 4), ("InstanceNormalization", 2)):
        x = np.empty((0, 3, 4), np.float32)
        result = run_ir(op_type, [x, *parameters[:count]], {"epsilon": 1e-5})
        assert result[0].shape == x.shape


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "message"),
    [
        ("BatchNormalization", [(2, 3), (4,), *[(3,)] * 3], {}, r"input 1 .* \[3\], not \[4\]"),
        ("InstanceNormalization", [(3,), (3,), (3,)], {}, "at least 2 dimensions"),
        ("GroupNormalization", [(1, 6), (6,), (6,)], {"num_groups": 4}, "6 channels .* 4 groups"),
        ("LayerNormalization", [(2, 3), (4,)], {"axis": 1}, "do not broadcast"),
        ("LRN", [(2, 3, 4)], {"size": 0}, "size must be positive"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_ir(op_type, [np.ones(shape, np.float32) for shape in shapes], attributes)
