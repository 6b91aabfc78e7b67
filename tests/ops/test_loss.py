"""Losses against a slow, literal reading of their definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import DeviceError, ModelError
from popc_runtime.format import Array, Attribute, DType
from tests.support.models import executable
from tests.support.oracles import epsilon, one_node_model, run_ir, run_op, smallest

_RNG = np.random.default_rng(11)


def _expected(
    log_prob: Array, labels: Array, weights: Array | None, ignore: int | None, reduction: str
) -> Array:
    losses = np.zeros(labels.shape)
    total = 0.0
    for index, label in np.ndenumerate(labels):
        if label == ignore:
            continue
        weight = 1.0 if weights is None else float(weights[label])
        losses[index] = -weight * float(log_prob[(index[0], label, *index[1:])])
        total += weight
    if reduction == "none":
        return losses
    with np.errstate(invalid="ignore"):  # if all labels are ignored, the mean is NaN
        return np.asarray(losses.sum() / (total if reduction == "mean" else 1))


def _log_softmax(scores: Array) -> Array:
    wide = scores.astype(np.longdouble)  # more exact than what is compared with it
    wide = wide - wide.max(axis=1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("ignore", [None, 1, -1, 255])
@pytest.mark.parametrize("weighted", [0, 1])
@pytest.mark.parametrize("inner", [(), (4,), (2, 3, 2)])
@pytest.mark.parametrize("labels_dtype", [np.int32, np.int64])
def test_losses(
    reduction: str, ignore: int | None, weighted: int, inner: tuple[int, ...], labels_dtype: Any
) -> None:
    scores = _RNG.normal(size=(5, 3, *inner)).astype(np.float32)
    labels = _RNG.integers(0, 3, (5, *inner)).astype(labels_dtype)
    if ignore is not None:
        labels.flat[0] = ignore
    weights = _RNG.uniform(0.5, 2, 3).astype(np.float32) if weighted else None
    attributes: dict[str, Any] = {"reduction": reduction}
    if ignore is not None:
        attributes["ignore_index"] = ignore
    operands = [scores, labels, *([] if weights is None else [weights])]
    log_prob = _log_softmax(scores)

    (loss,) = run_op("NegativeLogLikelihoodLoss", operands, attributes)
    expected = _expected(scores, labels, weights, ignore, reduction)
    assert loss.dtype == np.float32
    assert loss.shape == expected.shape
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)

    loss, result = run_op("SoftmaxCrossEntropyLoss", operands, attributes, outputs=2)
    expected = _expected(log_prob, labels, weights, ignore, reduction)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result, log_prob, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("outputs", [1, 2])
def test_element_types(dtype: Any, outputs: int) -> None:
    step = epsilon(dtype)
    scores = (_RNG.normal(size=(300, 40)) * 9).astype(dtype)
    labels = _RNG.integers(0, 40, 300)
    results = run_op("SoftmaxCrossEntropyLoss", [scores, labels], outputs=outputs)
    log_prob = _log_softmax(scores)
    expected = _expected(log_prob, labels, None, None, "mean")
    np.testing.assert_allclose(results[0].astype(np.float64), expected, rtol=4 * step)
    if outputs == 2:
        np.testing.assert_allclose(results[1].astype(np.float64), log_prob, rtol=step, atol=1e-6)


def test_large_scores_and_strided_operands() -> None:
    scores = (_RNG.normal(size=(4, 6, 5)) * 1000).astype(np.float32).transpose(2, 1, 0)
    labels = _RNG.integers(0, 6, (4, 5)).T
    loss, log_prob = run_ir(
        "SoftmaxCrossEntropyLoss", [scores, labels], {"reduction": "sum", "log_prob": 1}
    )
    np.testing.assert_allclose(log_prob, _log_softmax(scores), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        loss, _expected(_log_softmax(scores), labels, None, None, "sum"), rtol=1e-5
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("shape", [(70, 1200), (3, 5, 300, 70)])
def test_softmax_and_gradient(reduction: str, dtype: Any, shape: tuple[int, ...]) -> None:
    """Several blocks, cut by samples and by what follows the classes."""
    scores = (_RNG.normal(size=shape) * 3).astype(dtype)
    labels = _RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    labels.flat[:5] = 0
    attributes: dict[str, Any] = {"reduction": reduction, "ignore_index": 0}
    loss, softmax = run_ir(
        "SoftmaxCrossEntropyLoss", [scores, labels], {**attributes, "softmax": 1}
    )
    exact = np.exp(_log_softmax(scores))
    step = epsilon(dtype)
    least = smallest(dtype)
    # Scores less their maximum, to 32, lose 8 steps; so may sums of 1,200.
    np.testing.assert_allclose(softmax, exact, rtol=32 * step, atol=least)
    wrong = exact.copy()
    np.put_along_axis(
        wrong,
        labels[:, None],
        np.take_along_axis(wrong, labels[:, None], 1) - 1,
        axis=1,
    )
    counted = labels != 0
    share = 1 / counted.sum() if reduction == "mean" else 1.0
    (gradient,) = run_ir(
        "SoftmaxCrossEntropyLossGrad", [np.ones_like(loss), softmax, labels], attributes
    )
    expected = wrong * counted[:, None] * share
    off = share * step * (32 * exact + 1) + least
    assert (np.abs(gradient - expected) <= off).all()


def test_nothing_counts() -> None:
    """As in PyTorch: the mean of nothing is no number, but moves no weights."""
    labels = np.full(3, 7)
    scores = _RNG.normal(size=(3, 4)).astype(np.float32)
    attributes: dict[str, Attribute] = {"reduction": "mean", "ignore_index": 7}
    loss, softmax = run_ir(
        "SoftmaxCrossEntropyLoss", [scores, labels], {**attributes, "softmax": 1}
    )
    assert np.isnan(loss)
    operands = [np.ones((), np.float32), softmax, labels]
    (gradient,) = run_ir("SoftmaxCrossEntropyLossGrad", operands, attributes)
    assert (gradient == 0).all()


@pytest.mark.parametrize(
    ("labels", "ignored", "message"),
    [
        ([[0, 3], [1, 2]], None, r"label 3 at \[0, 1\] is out of range for 3 classes$"),
        ([[0, 1], [-1, -2]], None, r"label -1 at \[1, 0\] .* 3 classes \(and 1 more\)$"),
        ([[255, 0], [255, 5]], 255, r"label 5 at \[1, 1\] .*; only 255 is ignored$"),
    ],
)
@pytest.mark.parametrize(
    ("op_type", "gradient"),
    [("NegativeLogLikelihoodLoss", False), ("SoftmaxCrossEntropyLoss", False),
     ("NegativeLogLikelihoodLossGrad", True)],
)  # fmt: skip
def test_labels_out_of_range(
    labels: list[list[int]], ignored: int | None, message: str, op_type: str, *, gradient: bool
) -> None:
    attributes: dict[str, Any] = {"reduction": "sum"}
    if ignored is not None:
        attributes["ignore_index"] = ignored
    scores: Array = np.zeros((2, 3, 2), np.float32)
    if gradient:
        attributes["shape"] = scores.shape
        scores = np.ones((), np.float32)
    with pytest.raises(IndexError, match=message):
        run_ir(op_type, [scores, np.array(labels)], attributes)


def test_labels_out_of_range_on_the_device(tmp_path: Path) -> None:
    scores, labels = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 3])
    model = one_node_model("SoftmaxCrossEntropyLoss", [scores, labels])
    model.graph.node[0].name = "criterion"
    with pytest.raises(DeviceError) as caught:
        executable(model, tmp_path).run(x0=scores, x1=labels)
    assert caught.value.subject == "criterion"
    assert caught.value.message == (
        "SoftmaxCrossEntropyLoss (criterion) failed: label 3 at [3] is out of range for 3 classes"
    )


def _types(*shapes: tuple[int, ...]) -> list[TensorType | None]:
    dtypes = (DType.FLOAT32, DType.INT64, DType.FLOAT32)
    return [TensorType(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=False)]


@pytest.mark.parametrize(
    ("types", "attributes", "message"),
    [
        (_types((3,), ()), {"reduction": "mean"}, "at least 2 dimensions"),
        (_types((3, 4), (4,)), {"reduction": "mean"}, "do not fit scores"),
        (_types((3, 4), (3,), (3,)), {"reduction": "mean"}, "do not fit 4 classes"),
        (_types((3, 4), (3,)), {"reduction": "max"}, "expected one of"),
    ],
)
def test_refusals(
    types: list[TensorType | None], attributes: dict[str, Attribute], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types("SoftmaxCrossEntropyLoss", types, attributes)
