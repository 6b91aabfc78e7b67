"""ai.graphcore: normalisation; judged by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(9)
_X: Final = _RNG.standard_normal((2, 6, 3, 4)) + 2
_SCALE: Final = _RNG.uniform(0.5, 2, 6)
_BIAS: Final = _RNG.standard_normal(6)


def _group_norm(
    x: Array, scale: Array, bias: Array, groups: int, epsilon: float, *, strided: bool = False
) -> tuple[Array, Array, Array]:
    """Channels along axis 1; a group's channels are next to each other or ``groups`` apart."""
    y = np.empty_like(x)
    means, inverses = [], []
    width = x.shape[1] // groups
    for sample in range(x.shape[0]):
        for group in range(groups):
            if strided:
                channels = list(range(group, x.shape[1], groups))
            else:
                channels = list(range(group * width, (group + 1) * width))
            part = x[sample, channels]
            means.append(part.mean())
            inverses.append(1 / np.sqrt(part.var() + epsilon))
            wide = (-1, *(1,) * (x.ndim - 2))
            normal = (part - means[-1]) * inverses[-1]
            y[sample, channels] = normal * scale[channels].reshape(wide) + bias[channels].reshape(
                wide
            )
    return y, np.array(means), np.array(inverses)


def _run(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any], outputs: int = 1
) -> list[Array]:
    return run_op(op_type, inputs, attributes, outputs=outputs, domain=_DOMAIN)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strided", [0, 1])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_normalization(groups: int, strided: int, dtype: Any) -> None:
    inputs = [array.astype(dtype) for array in (_X, _SCALE, _BIAS)]
    attributes = {"num_groups": groups, "epsilon": 0.1, "strided_channel_grouping": strided}
    results = _run("GroupNormalization", inputs, attributes, 3)
    expected = _group_norm(_X, _SCALE, _BIAS, groups, 0.1, strided=bool(strided))
    for result, wanted in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (wanted.shape, dtype)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_group_normalization_of_vectors() -> None:
    x = _X[:, :, 0, 0]
    (result,) = _run("GroupNormalization", [x, _SCALE, _BIAS], {"num_groups": 3})
    np.testing.assert_allclose(result, _group_norm(x, _SCALE, _BIAS, 3, 1e-5)[0])


@pytest.mark.parametrize(
    ("op_type", "groups"), [("InstanceNormalization", 6), ("LayerNormalization", 1)]
)
def test_channels_last(op_type: str, groups: int) -> None:
    last = np.moveaxis(_X, 1, -1)
    (result,) = _run(op_type, [last, _SCALE, _BIAS], {"epsilon": 1e-3})
    expected = _group_norm(_X, _SCALE, _BIAS, groups, 1e-3)[0]
    np.testing.assert_allclose(np.moveaxis(result, -1, 1), expected)
    (result,) = _run(op_type, [_X], {"channels_axis": 1})
    expected = _group_norm(_X, np.ones(6), np.zeros(6), groups, 1e-6)[0]
    np.testing.assert_allclose(result, expected)


_MEAN: Final = _RNG.standard_normal(6)
_VARIANCE: Final = _RNG.uniform(0.5, 2, 6)


def test_batch_normalization_by_running_statistics() -> None:
    inputs = [_X, _SCALE, _BIAS, _MEAN, _VARIANCE]
    (result,) = _run("BatchNormalization", inputs, {"epsilon": 0.01})
    scale, bias, mean, variance = (operand.reshape(-1, 1, 1) for operand in inputs[1:])
    np.testing.assert_allclose(result, (_X - mean) / np.sqrt(variance + 0.01) * scale + bias)


def test_batch_normalization_by_statistics_of_the_batch() -> None:
    inputs = [_X, _SCALE, _BIAS, _MEAN, _VARIANCE]
    y, mean, variance, saved_mean, saved_variance = _run(
        "BatchNormalization", inputs, {"momentum": 0.8}, 5
    )
    np.testing.assert_allclose(saved_mean, _X.mean((0, 2, 3)))
    np.testing.assert_allclose(saved_variance, _X.var((0, 2, 3)))
    np.testing.assert_allclose(mean, 0.8 * _MEAN + 0.2 * _X.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(
        variance, 0.8 * _VARIANCE + 0.2 * _X.var((0, 2, 3), ddof=1), rtol=1e-6
    )
    normal = (_X - _X.mean((0, 2, 3), keepdims=True)) / np.sqrt(
        _X.var((0, 2, 3), keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(y, normal * _SCALE.reshape(-1, 1, 1) + _BIAS.reshape(-1, 1, 1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
def test_normalize_image(dtype: Any) -> None:
    image = _RNG.integers(0, 256, (2, 3, 4, 3)).astype(dtype)
    kind = np.float32 if dtype == np.float32 else np.float16
    offsets, scales = np.array([1, 2, 3], kind), np.array([4, 5, 6], kind)
    (result,) = _run("NormalizeImage", [image, offsets, scales], {"scale": 1 / 255})
    expected = (image / np.float64(255) - np.arange(1.0, 4.0)) * np.arange(4.0, 7.0)
    assert result.dtype == kind
    tolerance = 1e-3 if kind == np.float16 else 1e-6
    np.testing.assert_allclose(result[..., :3], expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(result[..., 3], 0)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("GroupNormalization", [_X, _SCALE, _BIAS], {"num_groups": 4}, "into 4 groups"),
        ("GroupNormalization", [_X, _SCALE, _BIAS], {}, "attribute 'num_groups' is required"),
        ("GroupNormalization", [_X, _SCALE], {"num_groups": 2}, "takes 3 inputs, but 2"),
        ("GroupNormalization", [_X, _SCALE[:2], _BIAS], {"num_groups": 2}, r"shape \[6\]"),
        ("InstanceNormalization", [_X], {"channels_axis": 0}, "cannot be along axis 0"),
        ("NormalizeImage", [_X, _X[0, 0, 0, :3], _X[0, 0, 0, :3]], {}, "must be 3 channels"),
    ],
)
def test_wrong_groups_and_missing_operands_are_refused(
    op_type: str, inputs: list[Array], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model(op_type, inputs, attributes, domain=_DOMAIN))
