"""Gradients and steps of optimizers on float16 and bfloat16: see `test_halves` for tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.native import Library
from tests.native.bindings import numpy_results, steady_results
from tests.native.families.test_optimizer import STEPS
from tests.native.test_gradients import SLOPES
from tests.native.test_halves import DIGITS, numbers_of, stored

_POOL: Final = {"kernel_shape": (2, 2), "strides": (2, 2)}
_NORM: Final = {"axis": 1, "epsilon": 1e-3}
_CASES: Final[
    tuple[tuple[str, list[tuple[int, ...]], list[tuple[int, ...]], dict[str, Any]], ...]
] = (
    ("AveragePoolGrad", [(2, 3, 4, 4)], [(2, 3, 8, 8)], _POOL),
    ("SoftmaxGrad", [(5, 70), (5, 70)], [(5, 70)], {"axis": 1}),
    ("LogSoftmaxGrad", [(5, 70), (5, 70)], [(5, 70)], {"axis": 1}),
    ("LayerNormalizationGrad", [(5, 70), (5, 70), (70,)], [(5, 70), (70,), (70,)], _NORM),
    ("RMSNormalizationGrad", [(5, 70), (5, 70), (70,)], [(5, 70), (70,)], _NORM),
    (
        "GroupNormalizationGrad",
        [(9, 6, 7), (9, 6, 7), (6,)],
        [(9, 6, 7), (6,), (6,)],
        {"epsilon": 1e-3, "num_groups": 2},
    ),
    ("BatchNormalizationTraining", [(9, 5, 7), (5,), (5,)], [(9, 5, 7), (5,), (5,)], _NORM),
)


def _agree(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: dict[str, Any],
    dtype: DType,
) -> None:
    """Arrays of the type of the results are of ``dtype``."""
    arrays = (*inputs, *outputs)
    types = [
        None
        if array is None
        else dtype
        if array.dtype == dtype.storage
        else DType(array.dtype.name)
        for array in arrays
    ]
    expected = numpy_results(opcode, inputs, outputs, attributes, dtypes=types)
    found = steady_results(library, opcode, inputs, outputs, attributes, dtypes=types)
    for got, wanted in zip(found, expected, strict=True):
        values = numbers_of(wanted, dtype)
        error = np.abs(numbers_of(got, dtype) - values).max()
        assert error <= DIGITS[dtype] * np.abs(values).max()


def _halves(dtype: DType, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(0)
    return [stored(random.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", list(DIGITS))
@pytest.mark.parametrize(("opcode", "shapes", "results", "attributes"), _CASES)
def test_gradients_of_halves(
    library: Library,
    opcode: str,
    shapes: list[tuple[int, ...]],
    results: list[tuple[int, ...]],
    attributes: dict[str, Any],
    dtype: DType,
) -> None:
    inputs, outputs = _halves(dtype, *shapes), _halves(dtype, *results)
    _agree(library, opcode, inputs, outputs, attributes, dtype)


@pytest.mark.parametrize("dtype", list(DIGITS))
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("batch", [2, 9])
def test_gradients_of_convolutions(library: Library, batch: int, stride: int, dtype: DType) -> None:
    """They make copies of weights and of parts of the result, beside those in float32."""
    size = 8 // stride
    x, dy, w = _halves(dtype, (batch, 5, 8, 8), (batch, 6, size, size), (6, 5, 3, 3))
    attributes = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (1, 1, 1, 1),
        "group": 1,
        "kernel_shape": (3, 3),
    }
    _agree(library, "ConvTranspose", [dy, w], [x], attributes, dtype)
    _agree(library, "ConvWeightsGrad", [dy, x], [w], attributes, dtype)


@pytest.mark.parametrize("dtype", list(DIGITS))
def test_gradients_of_largest_elements(library: Library, dtype: DType) -> None:
    dy, x = _halves(dtype, (2, 3, 4, 4), (2, 3, 8, 8))
    types = [dtype, dtype]
    (y,) = numpy_results("MaxPool", [x], [dy], _POOL, dtypes=types)
    _agree(library, "MaxPoolGrad", [dy, x, y], [x], _POOL, dtype)


@pytest.mark.parametrize("dtype", list(DIGITS))
@pytest.mark.parametrize(("opcode", "attributes"), SLOPES)
def test_slopes_of_halves(
    library: Library, opcode: str, attributes: dict[str, Any], dtype: DType
) -> None:
    dy, x = _halves(dtype, (19, 37), (19, 37))
    _agree(library, opcode, [dy, x], [dy], attributes, dtype)


@pytest.mark.parametrize("dtype", list(DIGITS))
@pytest.mark.parametrize(("opcode", "tensors", "scalars", "attributes"), STEPS)
def test_steps_of_halves(
    library: Library,
    opcode: str,
    tensors: int,
    scalars: tuple[float, ...],
    attributes: dict[str, Any],
    dtype: DType,
) -> None:
    random = np.random.default_rng(0)
    inputs: list[Array | None] = [
        stored(random.random((7, 300)), dtype) for _ in range(abs(tensors))
    ]
    if opcode == "RMSPropUpdater" and tensors == 3:  # a variance is positive
        inputs[1] = stored(1 + random.random((7, 300)), dtype)
    inputs += [None] if tensors < 0 else []
    inputs += [np.asarray(value, np.float64) for value in scalars]
    outputs = _halves(dtype, (7, 300))
    _agree(library, opcode, inputs, outputs, attributes, dtype)


@pytest.mark.parametrize("dtype", list(DIGITS))
def test_cross_entropy_of_halves(library: Library, dtype: DType) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 50)
    x, loss = _halves(dtype, (50, 10), ())
    attributes: dict[str, Any] = {"reduction": "mean", "softmax": 1}
    _agree(library, "SoftmaxCrossEntropyLoss", [x, labels, None], [loss, x], attributes, dtype)
    softmax = stored(np.random.default_rng(1).random((50, 10)), dtype)
    grad = stored(np.asarray(0.7), dtype)
    more = {"reduction": "mean", "log_probability": 0}
    operands = [grad, softmax, labels, None]
    _agree(library, "SoftmaxCrossEntropyLossGrad", operands, [x], more, dtype)
