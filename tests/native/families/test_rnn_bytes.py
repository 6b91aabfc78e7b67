"""LSTMs with weights of bytes, native against numpy, in sizes that nobody would choose.

Both round to bytes.  The last bit of a state decides which byte it becomes, so that results
may differ by what one step of a byte is worth, times a weight.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.kernels.rnn_bytes import rounded_rows
from popc_runtime.native import Library
from tests.native.bindings import native_results, numpy_results, steady_results

_OPCODE: Final = "DynamicQuantizeLSTM"
_STORED: Final = (1, 2, 3, 8, 9, 10, 11)
_BYTE: Final = 2 / 255  # a step of a state
_USUAL: Final = ("sigmoid", "tanh", "tanh")


def _layer(
    steps: int,
    batch: int,
    width: int,
    hidden: int,
    *,
    functions: tuple[str, ...] = _USUAL,
    ways: int = 1,
    zero: bool = False,
    **more: Any,
) -> tuple[list[Array | None], list[Array], dict[str, Any]]:
    """Operands with lengths and states, results and attributes."""
    random = np.random.default_rng(hidden)

    def numbers(*shape: int) -> Array:
        return random.standard_normal(shape, np.float32)

    def matrix(k: int) -> tuple[Array, Array, Array | None]:
        weights = random.integers(-127, 128, (ways, 4 * hidden, k)).astype(np.int8)
        scale = random.uniform(0.5, 1, (ways, 4 * hidden)).astype(np.float32) / (127 * k**0.5)
        zeros = random.integers(-20, 20, (ways, 4 * hidden)).astype(np.int8) if zero else None
        return weights, scale.astype(np.float32), zeros

    (w, *of_w), (r, *of_r) = matrix(width), matrix(hidden)
    lengths = np.resize([steps, 0, 3], batch).astype(np.int32)
    states = [numbers(ways, batch, hidden) for _ in range(2)]
    bias = numbers(ways, 8 * hidden)
    x = numbers(steps, batch, width)
    inputs: list[Array | None] = [x, w, r, bias, lengths, *states, None, *of_w, *of_r]
    outputs = [
        np.empty((steps, ways, batch, hidden), np.float32),
        *(np.empty((ways, batch, hidden), np.float32) for _ in range(2)),
    ]
    attributes = {
        "direction": "bidirectional" if ways == 2 else "forward",
        "activations": functions * ways,
        "alphas": (0.25,) * 3 * ways,
        "betas": (0.4,) * 3 * ways,
        "clip": 0.0,
        "input_forget": 0,
        **more,
    }
    return inputs, outputs, attributes


def _check(library: Library, layer: tuple[list[Array | None], list[Array], dict[str, Any]]) -> None:
    inputs, outputs, attributes = layer
    expected = numpy_results(_OPCODE, inputs, outputs, attributes, _STORED)
    got = steady_results(library, _OPCODE, inputs, outputs, attributes, _STORED)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2 * _BYTE)
        assert np.median(np.abs(one - other)) < 1e-5


@pytest.mark.parametrize("batch", [1, 2, 5, 17])
@pytest.mark.parametrize(("width", "hidden"), [(1, 1), (3, 33), (70, 16), (5, 130)])
@pytest.mark.parametrize("zero", [False, True])
def test_sizes(library: Library, batch: int, width: int, hidden: int, zero: bool) -> None:  # noqa: FBT001
    _check(library, _layer(4, batch, width, hidden, zero=zero))
    _check(library, _layer(4, batch, width, hidden, ways=2))


def test_a_long_input(library: Library) -> None:
    _check(library, _layer(130, 3, 9, 20))


@pytest.mark.parametrize(
    ("functions", "more"),
    [
        (_USUAL, {"clip": 0.5}),
        (_USUAL, {"input_forget": 1}),
        (("hardsigmoid", "elu", "leakyrelu"), {}),
    ],
)
def test_other_cells(library: Library, functions: tuple[str, ...], more: dict[str, Any]) -> None:
    layer = _layer(5, 3, 7, 19, functions=functions, **more)
    layer[0][7] = np.linspace(-1, 1, 3 * 19, dtype=np.float32)[None]  # peepholes
    _check(library, layer)


def test_rows_of_an_input_that_are_not_finite_or_nothing(library: Library) -> None:
    inputs, outputs, attributes = _layer(4, 3, 7, 19)
    inputs[4] = None
    x = inputs[0]
    assert x is not None
    x[0, 0, 3], x[0, 1, 6], x[:, 2] = np.nan, -np.inf, 0
    expected = numpy_results(_OPCODE, inputs, outputs, attributes, _STORED)
    got = steady_results(library, _OPCODE, inputs, outputs, attributes, _STORED)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        np.testing.assert_allclose(one, other, rtol=0, atol=2 * _BYTE)
    assert np.isnan(got[0][:, 0, :2]).all()
    assert np.isfinite(got[0][:, 0, 2]).all()


def test_weights_that_change_are_left_to_numpy(library: Library) -> None:
    inputs, outputs, attributes = _layer(2, 1, 3, 4)
    assert native_results(library, _OPCODE, inputs, outputs, attributes, ()) is None
    assert native_results(library, _OPCODE, inputs, outputs, attributes, _STORED[1:]) is None


def test_rounded_rows() -> None:
    x = np.array([[0, 1, 2.55], [-1.28, 0, 1.27], [-5, -5, -2.5], [0, 0, 0]], np.float32)
    np.testing.assert_allclose(rounded_rows(x), x, atol=0.0101)
    np.testing.assert_array_equal(rounded_rows(x)[x == 0], 0)
