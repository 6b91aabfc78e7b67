"""Steps of optimizers, and sums of gradients, give what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library
from tests.native.bindings import native_results
from tests.native.test_kernels import _compare, _numbers


def _scalars(*values: float) -> list[Array]:
    return [np.asarray(value, np.float64) for value in values]


STEPS: list[tuple[str, int, tuple[float, ...], dict[str, Any]]] = [
    ("AccumulateMoment", 2, (0.9, 0.5), {"kind": "decay_add"}),
    ("AccumulateMoment", 2, (0.9, 0.5), {"kind": "decay_add_square"}),
    ("AccumulateMoment", 2, (0.9, 0.5), {"kind": "infinity"}),
    ("AccumulateMoment", 2, (0.9, 0.5), {"kind": "moving_average"}),
    ("AccumulateMoment", 2, (0.9,), {"kind": "moving_average_square"}),
    ("AdaDeltaUpdater", 3, (1e-3, 2.0), {}),
    ("AdamUpdater", 3, (0.01, 0.9, 0.99, 1e-6, 3.0), {"mode": "adam"}),
    ("AdamUpdater", 3, (0.0, 0.9, 0.99, 1e-6), {"mode": "lamb"}),
    ("AdamUpdater", 3, (0.0, 0.9, 0.99, 1e-6, 3.0), {"mode": "adamax"}),
    ("AdamVarUpdate", 3, (0.1, 0.99, 0.9, 0.99, 1e-6, 3.0), {"mode": "adam"}),
    ("AdamVarUpdate", 3, (0.1, 1.0, 0.9, 0.99, 1e-6, 3.0), {"mode": "adamax"}),
    ("AdamVarUpdate", 3, (0.0, 1.0, 0.9, 0.99, 1e-6), {"mode": "adam_no_bias"}),
    ("LambVarUpdate", 2, (0.1, 4.0, 9.0, 1.5), {}),
    ("LambVarUpdate", 2, (0.1, 4.0, 9.0), {}),
    ("RMSPropUpdater", -2, (1e-3, 0.5), {"tf_variant": 0}),
    ("RMSPropUpdater", -2, (1e-3, 0.5), {"tf_variant": 1}),
    ("RMSPropUpdater", 3, (1e-3, 0.5), {"tf_variant": 0}),
    ("RMSPropUpdater", 3, (1e-3,), {"tf_variant": 1}),
    ("SGD0VarUpdate", 2, (0.1, 0.99), {}),
    ("SGD1AcclUpdate", 2, (0.9, 0.2), {}),
    ("SGD1VarUpdate", 2, (0.1,), {}),
    ("SGD2AcclUpdate", 3, (0.9, 0.2, 0.3), {}),
    ("SGDNesterovVarUpdate", 3, (0.9, 0.2, 0.3), {}),
    ("ScaledGradient", 2, (0.9, 0.2), {}),
    ("ScaledVarUpdate", 2, (0.9,), {}),
]


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(("opcode", "tensors", "scalars", "attributes"), STEPS)
def test_steps_of_optimizers(
    library: Library,
    opcode: str,
    tensors: int,
    scalars: tuple[float, ...],
    attributes: dict[str, Any],
    *,
    final: bool,
) -> None:
    operands: list[Array | None] = [np.abs(_numbers(7, 3000, seed=i)) for i in range(abs(tensors))]
    operands += [None] if tensors < 0 else []
    count = len(operands)
    operands += _scalars(*scalars)
    constant = range(count, len(operands)) if final else ()
    out = np.empty((7, 3000), np.float32)
    if opcode == "RMSPropUpdater" and tensors == 3:  # a variance is positive
        mean = operands[2]
        assert mean is not None
        operands[1] = np.square(mean) + 1
    _compare(library, opcode, operands, [out], attributes, constant, rtol=1e-5, atol=1e-5)


def test_momentum_without_gradients_becomes_zero(library: Library) -> None:
    momentum, gradient = np.full(100, 1e-37, np.float32), np.zeros(100, np.float32)
    operands = [momentum, gradient, *_scalars(0.9, 1.0)]
    for _ in range(300):
        results = native_results(library, "SGD1AcclUpdate", operands, [momentum], {})
        assert results is not None
        (operands[0],) = results
    assert np.abs(operands[0]).max() <= 1e-38
    small = np.full(100, 1e-40, np.float32)
    kept = native_results(library, "Add", [gradient, small], [gradient], {})
    assert kept is not None
    np.testing.assert_array_equal(kept[0], small)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_sums_of_operands(library: Library, count: int, dtype: str) -> None:
    shapes = [(4, 9), (9,), (4, 1), (), (4, 9)][:count]
    inputs = [_numbers(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]
    _compare(library, "Sum", inputs, [np.empty((4, 9), dtype)], {})
