"""Losses of PopART's domain, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import epsilon, run_op

_DOMAIN = "ai.graphcore"
_RNG = np.random.default_rng(6)


def _reduced(losses: Array, reduction: str, count: int | None = None) -> Array:
    if reduction == "NoReduction":
        return losses
    total = losses.sum()
    return np.asarray(total if reduction == "Sum" else total / (count or losses.size))


_REDUCTION = pytest.mark.parametrize("reduction", ["Mean", "NoReduction", "Sum"])


@_REDUCTION
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), ()])
def test_identity_and_l1(reduction: str, shape: tuple[int, ...]) -> None:
    x = np.asarray(_RNG.normal(size=shape), np.float32)
    attributes: dict[str, Any] = {"reduction": reduction}
    (loss,) = run_op("IdentityLoss", [x], attributes, domain=_DOMAIN)
    np.testing.assert_allclose(loss, _reduced(x, reduction), rtol=1e-5, atol=1e-6)
    for factor in (1.0, 0.25):
        (loss,) = run_op("L1", [x], {**attributes, "lambda": factor}, domain=_DOMAIN)
        np.testing.assert_allclose(loss, _reduced(np.abs(x) * factor, reduction), rtol=1e-5)


@_REDUCTION
@pytest.mark.parametrize("logarithms", [0, 1])
@pytest.mark.parametrize(
    ("ignored", "integers"), [(None, np.int32), (2, np.uint32), (-1, np.int64)]
)
@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 4), (4,)])
def test_nll(
    reduction: str, logarithms: int, ignored: int | None, shape: tuple[int, ...], integers: Any
) -> None:
    probabilities = _RNG.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)
    labels = np.asarray(_RNG.integers(0, 4, shape[:-1]), integers)
    attributes: dict[str, Any] = {"reduction": reduction, "inputIsLogProbability": logarithms}
    if ignored is not None and labels.size > 1:
        labels.flat[0] = ignored
        attributes["ignoreIndex"] = ignored
    x = np.log(probabilities) if logarithms else probabilities
    (loss,) = run_op("Nll", [x, labels], attributes, domain=_DOMAIN)
    counted = labels != attributes.get("ignoreIndex", -100)
    picked = np.take_along_axis(
        probabilities, np.where(counted, labels, 0)[..., None].astype(np.int64), axis=-1
    )
    losses = np.where(counted, -np.log(picked[..., 0]), 0)
    np.testing.assert_allclose(loss, _reduced(losses, reduction, int(counted.sum())), rtol=1e-5)


def test_nll_of_a_vanishing_probability_is_bounded() -> None:
    for dtype, least in ((np.float32, 1e-7), (np.float16, 2.0**-14)):
        x = np.array([[1.0, 0.0]], dtype)
        (loss,) = run_op("Nll", [x, np.array([1])], {}, domain=_DOMAIN)
        assert float(loss) == pytest.approx(-np.log(least), rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_element_types(dtype: Any) -> None:
    probabilities = _RNG.dirichlet(np.full(9, 3), 50).astype(dtype)  # none rounds to zero
    labels = _RNG.integers(0, 9, 50)
    exact = -np.log(probabilities.astype(np.float64)[np.arange(50), labels]).mean()
    (loss,) = run_op("Nll", [probabilities, labels], {"reduction": "Mean"}, domain=_DOMAIN)
    assert loss.dtype == (np.float32 if dtype is ml_dtypes.bfloat16 else dtype)
    np.testing.assert_allclose(float(loss), exact, rtol=2 * epsilon(dtype))


def test_mean_is_the_default_and_others_are_refused() -> None:
    x = np.arange(4, dtype=np.float32)
    (loss,) = run_op("IdentityLoss", [x], domain=_DOMAIN)
    assert loss == np.float32(1.5)
    with pytest.raises(ModelError) as caught:
        run_op("IdentityLoss", [x], {"reduction": "mean"}, domain=_DOMAIN)
    assert "'mean' is not one of Mean, None, NoReduction, Sum" in str(caught.value)


@pytest.mark.parametrize(
    ("op_type", "inputs", "message"),
    [
        ("Nll", [np.ones((2, 3), np.float32), np.zeros(3, int)], "do not fit probabilities"),
        ("Nll", [np.ones((2, 3), np.float32), np.ones(2, np.float32)], "not allowed here"),
        ("Nll", [np.float32(1), np.int32(0)], "do not fit probabilities"),
        ("L1", [np.ones(3, np.float32)], "'lambda' is required"),
    ],
)
def test_refusals(op_type: str, inputs: list[Array], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op(op_type, inputs, domain=_DOMAIN)
