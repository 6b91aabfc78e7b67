"""Connectionist temporal classification, native against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, find_library
from popc_runtime.native.library import variants
from tests.native.bindings import native_results, numpy_results, steady_results


def _logarithms(steps: int, batch: int, classes: int, seed: int = 0) -> Array:
    scores = np.random.default_rng(seed).normal(0, 3, (steps, batch, classes))
    logarithms: Array = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return logarithms.astype(np.float32)


def _compare(
    library: Library, inputs: list[Array | None], attributes: dict[str, Any]
) -> list[Array]:
    logs = inputs[0]
    assert logs is not None
    batch = (logs.shape[1],) if attributes["reduction"] == "none" else ()
    outputs = [np.empty(batch, np.float32)]
    if attributes["gradient"]:
        outputs.append(np.empty(logs.shape, np.float32))
    expected = numpy_results("Ctc", inputs, outputs, attributes)
    got = steady_results(library, "Ctc", inputs, outputs, attributes)
    np.testing.assert_allclose(got[0], expected[0], rtol=2e-6)
    for one, other in zip(got[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
    return got


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_losses(data: st.DataObject) -> None:
    """Labels that no path fits among them, samples without labels or time steps."""
    library = find_library(data.draw(st.sampled_from(variants()), label="library"))
    if library is None:
        pytest.skip("there are no native kernels")
    steps, batch = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    classes, most = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 12))
    random = np.random.default_rng(steps)
    blank = data.draw(st.integers(0, classes - 1), label="blank")
    labels = random.integers(0, classes, (batch, most))
    labels[labels == blank] = (blank + 1) % classes
    indices = [labels, random.integers(0, steps + 1, batch), random.integers(0, most + 1, batch)]
    dtype = data.draw(st.sampled_from([np.int32, np.int64]), label="type")
    logs = _logarithms(steps, batch, classes, seed=most)
    if data.draw(st.booleans(), label="apart"):
        logs = np.repeat(logs, 2, axis=2)[..., ::2]
    attributes = {
        "blank": blank,
        "reduction": data.draw(st.sampled_from(["none", "sum", "mean"]), label="reduction"),
        "zero_infinity": data.draw(st.integers(0, 1), label="zero infinity"),
        "gradient": data.draw(st.integers(0, 1), label="gradient"),
    }
    _compare(library, [logs, *(indice.astype(dtype) for indice in indices)], attributes)


def test_long_samples(library: Library) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(1, 30, (3, 60))
    ends, counts = np.array([300, 250, 120]), np.array([60, 31, 0])
    attributes = {"blank": 0, "reduction": "none", "zero_infinity": 0, "gradient": 1}
    _, grads = _compare(library, [_logarithms(300, 3, 30), labels, ends, counts], attributes)
    np.testing.assert_allclose(grads[:250, :2].sum(-1), -1, atol=1e-3)
    assert not grads[250:, 1].any()


@pytest.mark.parametrize(
    ("ends", "counts", "label", "message"),
    [
        (9, 1, 1, "time steps"),
        (-1, 1, 1, "time steps"),
        (4, 3, 1, "labels"),
        (4, 1, 5, "out of range"),
        (4, 1, -2, "out of range"),
        (4, 1, 0, "the blank"),
    ],
)
def test_what_is_out_of_range(
    library: Library, ends: int, counts: int, label: int, message: str
) -> None:
    inputs = [_logarithms(8, 1, 5), np.array([[label, 1]]), np.array([ends]), np.array([counts])]
    attributes = {"blank": 0, "reduction": "sum", "zero_infinity": 0, "gradient": 0}
    with pytest.raises(NativeFailure, match=message):
        native_results(library, "Ctc", inputs, [np.empty((), np.float32)], attributes)


def test_labels_that_there_are_not(library: Library) -> None:
    """Numbers of no place are numpy's."""
    inputs = [_logarithms(8, 1, 5), np.empty((1, 0), np.int64), np.array([4]), np.array([0])]
    attributes = {"blank": 0, "reduction": "sum", "zero_infinity": 0, "gradient": 0}
    assert not native_results(library, "Ctc", inputs, [np.empty((), np.float32)], attributes)
