"""The optimizers of ai.onnx.preview.training against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import run_op

_DOMAIN = "ai.onnx.preview.training"
_RNG = np.random.default_rng(2)


def _tensors(count: int, dtype: Any) -> list[Array]:
    return [_RNG.uniform(0.1, 1, (2, 3)).astype(dtype) for _ in range(count)]


def _run(
    name: str, rate: float, updates: int, tensors: list[Array], attributes: dict[str, Any], n: int
) -> list[Array]:
    operands: list[Array] = [np.array(rate, np.float32), np.array(updates, np.int64), *tensors]
    return run_op(name, operands, attributes, domain=_DOMAIN, outputs=n)


@pytest.mark.parametrize("updates", [0, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adagrad(updates: int, dtype: Any) -> None:
    x1, x2, g1, g2, h1, h2 = tensors = _tensors(6, dtype)
    attributes = {"norm_coefficient": 0.01, "epsilon": 1e-5, "decay_factor": 0.1}
    actual = _run("Adagrad", 0.1, updates, tensors, attributes, 4)
    rate = 0.1 / (1 + updates * 0.1)
    for index, (x, g, h) in enumerate([(x1, g1, h1), (x2, g2, h2)]):
        decayed = 0.01 * x + g
        state = h + decayed * decayed
        expected = x - rate * decayed / (np.sqrt(state) + 1e-5)
        np.testing.assert_allclose(actual[index], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(actual[2 + index], state, rtol=1e-5)


@pytest.mark.parametrize("updates", [0, 1, 5])
@pytest.mark.parametrize("post", [0.0, 0.25])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adam(updates: int, post: float, dtype: Any) -> None:
    x, g, v, h = tensors = _tensors(4, dtype)
    attributes = {
        "norm_coefficient": 0.01,
        "norm_coefficient_post": post,
        "alpha": 0.9,
        "beta": 0.99,
        "epsilon": 1e-4,
    }
    actual = _run("Adam", 0.1, updates, tensors, attributes, 3)
    g = 0.01 * x + g
    v, h = 0.9 * v + 0.1 * g, 0.99 * h + 0.01 * g * g
    rate = 0.1 * np.sqrt(1 - 0.99**updates) / (1 - 0.9**updates) if updates else 0.1
    expected = [(1 - post) * (x - rate * v / (np.sqrt(h) + 1e-4)), v, h]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("updates", [0, 2])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(updates: int, mode: str) -> None:
    x, g, v = tensors = _tensors(3, np.float32)
    attributes = {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": mode}
    actual = _run("Momentum", 0.1, updates, tensors, attributes, 2)
    g = 0.01 * x + g
    v = 0.9 * v + (0.5 if updates else 1) * g
    step = v if mode == "standard" else g + 0.9 * v
    np.testing.assert_allclose(actual[0], x - 0.1 * step, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual[1], v, rtol=1e-5)


def test_refusals() -> None:
    attributes = {"norm_coefficient": 0.0, "alpha": 0.9, "beta": 1.0, "mode": "odd"}
    with pytest.raises(ModelError) as caught:
        _run("Momentum", 0.1, 1, _tensors(3, np.float32), attributes, 2)
    assert "expected standard or nesterov" in str(caught.value)
    with pytest.raises(ModelError) as caught:
        _run("Adam", 0.1, 1, _tensors(3, np.float32), {}, 2)
    assert "5 inputs" in str(caught.value)
