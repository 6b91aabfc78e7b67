"""Gradients of normalisation: blocks, shares, element types, strides, large means, in place.

`tests/autodiff/cases_norm.py` checks that they are the gradients of the forward ops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import run_ir, run_op

_RNG: Final = np.random.default_rng(23)
_EPSILON: Final = 1e-3
_Attributes = dict[str, Attribute]


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _normalized(x: Array, axes: tuple[int, ...], *, centred: bool = True) -> tuple[Array, Array]:
    """X normalised over ``axes``, and 1 / deviation, in float64."""
    wide = x.astype(np.float64)
    if centred:
        wide = wide - wide.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt((wide * wide).mean(axes, keepdims=True) + _EPSILON)
    return wide * inverse, inverse


def _data(
    g: Array, z: Array, inverse: Array, axes: tuple[int, ...], *, centred: bool = True
) -> Array:
    mean = g.mean(axes, keepdims=True) if centred else 0
    return np.asarray(inverse * (g - mean - z * (g * z).mean(axes, keepdims=True)))


def _close(actual: Array, wanted: Array, tolerance: float = 2e-5) -> None:
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * scale)


def _others(shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(shape)) if axis != kept)


_BATCHES: Final = [
    (4, 3, 5, 6),
    (64, 5),
    (300, 700),
    (2, 40, 13, 11),
    (70, 6, 40, 40),
    (3, 2, 300, 400),
]


def _batch(x: Array, dy: Array, scale: Array) -> list[Array]:
    axes = _others(x.shape, 1)
    column = (-1, *(1 for _ in x.shape[2:]))
    z, inverse = _normalized(x, axes)
    g = dy.astype(np.float64) * scale.astype(np.float64).reshape(column)
    return [_data(g, z, inverse, axes), (dy * z).sum(axes), dy.sum(axes, dtype=np.float64)]


def _statistics(x: Array) -> list[Array]:
    axes = _others(x.shape, 1)
    wide = x.astype(np.float64)
    return [wide.mean(axes).astype(np.float32), wide.var(axes).astype(np.float32)]


@pytest.mark.parametrize("shape", _BATCHES)
def test_batch_normalization(shape: tuple[int, ...]) -> None:
    x, dy = _random(*shape) * 2 + 3, _random(*shape)
    scale, bias = _random(shape[1]), _random(shape[1])
    y, mean, variance = run_ir(
        "BatchNormalizationTraining", [x, scale, bias], {"epsilon": _EPSILON}
    )
    column = (-1, *(1 for _ in shape[2:]))
    z, _ = _normalized(x, _others(shape, 1))
    _close(y, z * scale.reshape(column) + bias.reshape(column))
    for actual, wanted in zip((mean, variance), _statistics(x), strict=True):
        _close(actual, wanted)
    attributes: _Attributes = {"epsilon": _EPSILON, "training_mode": 1}
    results = run_ir("BatchNormalizationGrad", [dy, x, scale, mean, variance], attributes)
    for actual, wanted in zip(results, _batch(x, dy, scale), strict=True):
        _close(actual, wanted, 1e-4)


def test_batch_normalization_with_known_statistics() -> None:
    x, dy, scale = _random(3, 4, 5), _random(3, 4, 5), _random(4)
    mean, variance = _random(4), np.abs(_random(4))
    attributes: _Attributes = {"epsilon": _EPSILON, "training_mode": 0}
    data, of_scale, _ = run_ir("BatchNormalizationGrad", [dy, x, scale, mean, variance], attributes)
    inverse = 1 / np.sqrt(variance.astype(np.float64) + _EPSILON)
    _close(data, dy * (scale * inverse)[:, None])
    _close(of_scale, (dy * (x - mean[:, None])).sum((0, 2)) * inverse)


def test_a_large_mean_costs_no_accuracy() -> None:
    x, dy, scale = _random(8, 3, 20) + 1000, _random(8, 3, 20), _random(3)
    y, mean, variance = run_ir(
        "BatchNormalizationTraining", [x, scale, scale], {"epsilon": _EPSILON}
    )
    z, _ = _normalized(x, (0, 2))
    _close(y, z * scale[:, None] + scale[:, None], 1e-3)
    attributes: _Attributes = {"epsilon": _EPSILON, "training_mode": 1}
    results = run_ir("BatchNormalizationGrad", [dy, x, scale, mean, variance], attributes)
    for actual, wanted in zip(results, _batch(x, dy, scale), strict=True):
        _close(actual, wanted, 1e-3)


@pytest.mark.parametrize("training_mode", [0, 1])
def test_running_statistics_in_half_precision(training_mode: int) -> None:
    x, *parameters = (_random(*shape, dtype=np.float16) for shape in ((4, 3, 5), *[(3,)] * 4))
    parameters[3] = np.abs(parameters[3])
    attributes = {"training_mode": training_mode, "momentum": 0.5}
    results = run_op("BatchNormalization", [x, *parameters], attributes, opset=15,
                     outputs=1 + 2 * training_mode)  # fmt: skip
    assert [array.dtype for array in results] == [np.float16] * len(results)
    if training_mode:
        wide = x.astype(np.float64)
        _close(results[1], 0.5 * parameters[2] + 0.5 * wide.mean((0, 2)), 1e-3)
        _close(results[2], 0.5 * parameters[3] + 0.5 * wide.var((0, 2)), 1e-3)


_ROWS: Final = [
    ((4, 6), 1),
    ((300, 512), 1),
    ((70, 50, 40), 1),
    ((2, 3, 200_000), 2),
    ((5, 4, 3), 0),
]


@pytest.mark.parametrize("given", ["nothing", "scale", "statistics"])
@pytest.mark.parametrize(("shape", "axis"), _ROWS)
@pytest.mark.parametrize("centred", [True, False])
def test_rows(shape: tuple[int, ...], axis: int, given: str, *, centred: bool) -> None:
    x, dy = _random(*shape) + 0.5, _random(*shape)
    scale = None if given == "nothing" else _random(*shape[axis:])
    axes, rows = tuple(range(axis, len(shape))), tuple(range(axis))
    z, inverse = _normalized(x, axes, centred=centred)
    inputs: list[Array | None] = [dy, x, scale]
    if given == "statistics" and centred:
        mean = x.mean(axes, keepdims=True, dtype=np.float64)
        inputs += [mean.astype(np.float32), inverse.astype(np.float32)]
    op_type = "LayerNormalizationGrad" if centred else "RMSNormalizationGrad"
    data, *sums = run_ir(op_type, inputs, {"axis": axis, "epsilon": _EPSILON})
    g = dy.astype(np.float64) * (1 if scale is None else scale)
    _close(data, _data(g, z, inverse, axes, centred=centred), 1e-4)
    _close(sums[0], (dy * z).sum(rows), 1e-4)
    if centred:
        _close(sums[1], dy.sum(rows, dtype=np.float64))


@pytest.mark.parametrize(("shape", "groups"), [
    ((3, 4, 5), 2), ((2, 6, 30, 40), 3), ((5, 64, 31, 33), 8), ((3, 8), 2), ((2, 2, 300, 500), 2),
])  # fmt: skip
def test_groups(shape: tuple[int, ...], groups: int) -> None:
    x, dy, scale = _random(*shape) - 2, _random(*shape), _random(shape[1])
    split = (shape[0], groups, shape[1] // groups, -1)
    z, inverse = _normalized(x.reshape(split), (2, 3))
    wide = dy.reshape(split).astype(np.float64)
    g = wide * scale.reshape(groups, -1, 1)
    wanted = [_data(g, z, inverse, (2, 3)).reshape(shape)]
    wanted += [array.sum((0, 3)).reshape(-1) for array in (wide * z, wide)]
    attributes: _Attributes = {"num_groups": groups, "epsilon": _EPSILON}
    actual = run_ir("GroupNormalizationGrad", [dy, x, scale], attributes)
    for one, other in zip(actual, wanted, strict=True):
        _close(one, other, 1e-4)
    if groups == shape[1]:
        del attributes["num_groups"]
        again = run_ir("InstanceNormalizationGrad", [dy, x, scale], attributes)
        np.testing.assert_array_equal(again[0], actual[0])


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 7, 4, 5), 3), ((2, 96, 60, 50), 5), ((1, 4, 6), 4)]
)
def test_local_response(shape: tuple[int, ...], size: int) -> None:
    x, dy = _random(*shape), _random(*shape)
    attributes: _Attributes = {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
    (actual,) = run_ir("LRNGrad", [dy, x], attributes)
    wide = x.astype(np.float64)
    step = 1e-6 * _RNG.standard_normal(shape)
    above, below = (run_ir("LRN", [wide + sign * step], attributes)[0] for sign in (1, -1))
    assert (actual * step).sum() == pytest.approx(
        (dy * (above - below)).sum() / 2, rel=1e-3, abs=1e-6
    )


_OPS: Final[dict[str, tuple[list[tuple[int, ...]], _Attributes]]] = {
    "BatchNormalizationGrad": (
        [(5, 6, 7), (5, 6, 7), (6,), (6,), (6,)],
        {"epsilon": 1.0, "training_mode": 1},
    ),
    "GroupNormalizationGrad": ([(5, 6, 7), (5, 6, 7), (6,)], {"epsilon": 1.0, "num_groups": 2}),
    "InstanceNormalizationGrad": ([(5, 6, 7), (5, 6, 7), (6,)], {"epsilon": 1.0}),
    "LayerNormalizationGrad": ([(5, 6, 7), (5, 6, 7), (7,)], {"epsilon": 1.0, "axis": 2}),
    "RMSNormalizationGrad": ([(5, 6, 7), (5, 6, 7), (7,)], {"epsilon": 1.0, "axis": 2}),
    "LRNGrad": (
        [(5, 6, 7), (5, 6, 7)],
        {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 2.0},
    ),
}


def _operands(op_type: str, dtype: Any = np.float64) -> list[Array]:
    shapes, _ = _OPS[op_type]
    return [np.abs(_random(*shape, dtype=dtype)) + dtype(0.5) for shape in shapes]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("op_type", _OPS)
def test_element_types(op_type: str, dtype: Any) -> None:
    operands, attributes = _operands(op_type, dtype), _OPS[op_type][1]
    wide = [array.astype(np.float64) for array in operands]
    actual, wanted = (run_ir(op_type, arrays, attributes) for arrays in (operands, wide))
    assert actual[0].dtype == dtype
    assert all(array.dtype == np.float32 for array in actual[1:])
    for one, other in zip(actual, wanted, strict=True):
        _close(one, other, 2e-3 if dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("op_type", _OPS)
def test_strided_operands(op_type: str) -> None:
    operands, attributes = _operands(op_type), _OPS[op_type][1]
    strided = [np.repeat(array, 2, axis=-1)[..., ::2] for array in operands]
    strided[0] = np.ascontiguousarray(strided[0].T).T
    for one, other in zip(
        *(run_ir(op_type, a, attributes) for a in (operands, strided)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def _bound(
    op_type: str, arrays: list[Array], outputs: list[Array | None], threads: int = 1
) -> None:
    types = [DType.of(array.dtype) for array in arrays]
    binding = Binding(
        inputs=tuple(arrays),
        outputs=tuple(outputs),
        input_dtypes=tuple(types),
        output_dtypes=tuple(None if a is None else DType.of(a.dtype) for a in outputs),
        attributes=_OPS[op_type][1],
        constant=(False,) * len(arrays),
        scratch=Scratch(threads),
        random=RandomState(),
    )
    for call in prepare(KERNELS[op_type], binding):
        call()


def _empty(op_type: str, arrays: list[Array]) -> list[Array | None]:
    types = [TensorType(DType.of(array.dtype), array.shape) for array in arrays]
    results = infer_types(op_type, types, _OPS[op_type][1])
    return [np.empty(type_.shape, type_.dtype.storage) for type_ in results]


@pytest.mark.parametrize("op_type", _OPS)
def test_only_some_results(op_type: str) -> None:
    arrays = _operands(op_type)
    every = _empty(op_type, arrays)
    _bound(op_type, arrays, every)
    for index in range(len(every) if len(every) > 1 else 0):
        some: list[Array | None] = [None] * len(every)
        some[index] = _empty(op_type, arrays)[index]
        _bound(op_type, arrays, some)
        np.testing.assert_array_equal(some[index], every[index])


@pytest.mark.parametrize("op_type", [name for name in _OPS if name != "LRNGrad"])
def test_in_place_of_the_gradient(op_type: str) -> None:
    arrays = _operands(op_type)
    outputs = _empty(op_type, arrays)
    _bound(op_type, arrays, outputs)
    _bound(op_type, arrays, [arrays[0], *_empty(op_type, arrays)[1:]])
    np.testing.assert_array_equal(arrays[0], outputs[0])


@pytest.mark.parametrize("op_type", _OPS)
def test_threads_do_not_change_results(op_type: str) -> None:
    arrays = [_random(96, 6, 1024), _random(96, 6, 1024)]
    arrays += [
        np.abs(_random(*((1024,) if shape == (7,) else shape))) for shape in _OPS[op_type][0][2:]
    ]
    results = [_empty(op_type, arrays) for _ in range(2)]
    for threads, outputs in enumerate(results, start=1):
        _bound(op_type, arrays, outputs, threads)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("op_type", _OPS)
def test_without_elements(op_type: str) -> None:
    shapes, attributes = _OPS[op_type]
    arrays = [
        np.zeros((0, *shape[1:]) if len(shape) > 1 else shape, np.float32) for shape in shapes
    ]
    data, *sums = run_ir(op_type, arrays, attributes)
    assert data.shape == (0, 6, 7)
    assert all(not array.any() for array in sums)


def test_operands_that_do_not_fit() -> None:
    x = _random(2, 6, 3)
    with pytest.raises(ModelError, match="input 2 must have shape"):
        run_ir("GroupNormalizationGrad", [x, x, _random(5)], {"num_groups": 2, "epsilon": 0.0})
    with pytest.raises(ModelError, match="cannot be divided"):
        run_ir("GroupNormalizationGrad", [x, x, _random(6)], {"num_groups": 4, "epsilon": 0.0})
    with pytest.raises(ModelError, match="input 3 must have shape"):
        run_ir("LayerNormalizationGrad", [x, x, None, x, x], {"axis": 2, "epsilon": 0.0})
