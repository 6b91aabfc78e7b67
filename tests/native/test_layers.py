"""Recurrent layers of every form, rotations, and losses of labels.

They agree with numpy to about a hundred-thousandth of the largest result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.native import Library, NativeFailure
from tests.native.bindings import native_results, numpy_results, steady_results

__all__ = ["LAYERS"]

LAYERS: Final = frozenset(
    {
        *("GRU", "LSTM", "NegativeLogLikelihoodLoss", "NegativeLogLikelihoodLossGrad"),
        *("Nll", "NllGrad", "RNN", "RotaryEmbedding"),
    }
)
_GATES: Final = {"GRU": 3, "LSTM": 4, "RNN": 1}
_FUNCTIONS: Final = {
    "GRU": ("hardsigmoid", "softplus"),
    "LSTM": ("sigmoid", "elu", "leakyrelu"),
    "RNN": ("tanh",),
}


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    constant: Sequence[int] = (),
    most_threads: int = 2,
) -> None:
    expected = numpy_results(opcode, inputs, outputs, attributes, constant)
    got = steady_results(
        library, opcode, inputs, outputs, attributes, constant, most_threads=most_threads
    )
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def _layer(
    opcode: str,
    direction: str,
    functions: tuple[str, ...],
    sizes: tuple[int, int, int, int] = (5, 3, 7, 19),
    **more: Any,
) -> tuple[list[Array | None], list[Array], dict[str, Any]]:
    """Operands, results and attributes of a layer, with states, lengths, and all that is kept."""
    ways, gates, states = 1 + (direction == "bidirectional"), _GATES[opcode], 1 + (opcode == "LSTM")
    steps, batch, width, hidden = sizes
    attributes = {
        "direction": direction,
        "activations": functions * ways,
        "alphas": (0.25,) * len(functions) * ways,
        "betas": (0.4,) * len(functions) * ways,
        "clip": 0.0,
        "input_forget": 0,
        "linear_before_reset": 0,
        **more,
    }
    inputs: list[Array | None] = [
        _numbers(steps, batch, width),
        _numbers(ways, gates * hidden, width, seed=1) / 3,
        _numbers(ways, gates * hidden, hidden, seed=2) / 5,
        _numbers(ways, 2 * gates * hidden, seed=3),
        np.resize([steps, 2, 3], batch).astype(np.int32),
        *(_numbers(ways, batch, hidden, seed=4 + index) for index in range(states)),
    ]
    if opcode == "LSTM":
        inputs.append(_numbers(ways, 3 * hidden, seed=7))
    if opcode == "GRU":
        inputs.append(np.abs(_numbers(steps, batch, seed=7)) / 3)
    kept = {"LSTM": 5, "GRU": 4 if attributes["linear_before_reset"] else 3}.get(opcode, 0)
    shapes = [
        (steps, ways, batch, hidden),
        *((ways, batch, hidden),) * states,
        (states, ways, steps + 1, batch, hidden),
        *(((kept, ways, steps, batch, hidden),) if kept else ()),
    ]
    return inputs, [np.empty(shape, np.float32) for shape in shapes], attributes


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("opcode", "more"),
    [
        ("RNN", {}),
        ("RNN", {"clip": 0.3}),
        ("LSTM", {}),
        ("LSTM", {"clip": 0.3, "input_forget": 1}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1, "clip": 0.3}),
    ],
)
def test_recurrent_layers(
    library: Library, opcode: str, direction: str, more: dict[str, Any]
) -> None:
    usual = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh"), "RNN": ("relu",)}
    for functions in (_FUNCTIONS[opcode], usual[opcode]):
        inputs, outputs, attributes = _layer(opcode, direction, functions, **more)
        for constant in ((), (1, 2, 3), (1, 2)):
            _check(library, opcode, inputs, outputs, attributes, constant)
            _check(library, opcode, inputs[:4], outputs[:1], attributes, constant)
            _check(library, opcode, inputs[:3], outputs, attributes, constant)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("opcode", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden", "direction"),
    [
        (50, 4, 16, "reverse"),  # several blocks of steps
        (3, 9, 33, "bidirectional"),  # rows that are packed, and some that are not
        (2, 20, 5, "forward"),
        (4, 1, 272, "forward"),  # several threads in a step
        (30, 13, 48, "reverse"),  # several threads with rows of their own
        (3, 9, 100, "forward"),
        (20, 9, 48, "bidirectional"),
    ],
)
def test_rows_steps_and_units_in_blocks(
    library: Library, opcode: str, steps: int, batch: int, hidden: int, direction: str, late: int
) -> None:
    functions = ("sigmoid", "tanh", "tanh")[: 3 if opcode == "LSTM" else 2]
    sizes = (steps, batch, 10, hidden)
    inputs, outputs, attributes = _layer(
        opcode, direction, functions, sizes, linear_before_reset=late
    )
    inputs[4] = np.arange(batch, dtype=np.int32) % (steps + 1)
    usual = inputs[: 6 + (opcode == "LSTM")]
    for given in (usual, [*usual[:4], None, *usual[5:]]):
        for wanted in (outputs[:2], outputs):
            for constant in ((1, 2, 3), ()):
                _check(library, opcode, given, wanted, attributes, constant, most_threads=4)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("opcode", _GATES)
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_weights_that_are_halves(library: Library, opcode: str, batch: int, late: int) -> None:
    """A few rows read them as such, which changes nothing."""
    functions = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh"), "RNN": ("elu",)}
    sizes = (4, batch, 5, 100)
    inputs, outputs, attributes = _layer(
        opcode, "bidirectional", functions[opcode], sizes, linear_before_reset=late
    )
    r = inputs[2]
    assert r is not None
    inputs[2] = r.astype(np.float16).astype(np.float32)
    for given, wanted in ((inputs, outputs), (inputs[:4], outputs[:1])):
        _check(library, opcode, given, wanted, attributes, (1, 2, 3))


@pytest.mark.parametrize("opcode", _GATES)
def test_recurrent_layers_of_batches_that_come_first(library: Library, opcode: str) -> None:
    """Results are written into a wider buffer, and no operand is contiguous."""
    inputs, outputs, attributes = _layer(opcode, "bidirectional", _FUNCTIONS[opcode])
    x, *others = inputs
    assert x is not None
    first = np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    spread = [None if array is None else np.repeat(array, 2, axis=-1)[..., ::2] for array in others]
    wide = [np.empty((*out.shape[:-1], 2 * out.shape[-1]), out.dtype)[..., ::2] for out in outputs]
    for constant in ((), (1, 2, 3)):
        _check(library, opcode, [first, *spread], wide, attributes, constant)


def test_functions_that_are_no_maps_are_left_to_numpy(library: Library) -> None:
    inputs, outputs, attributes = _layer("RNN", "forward", ("softmax",))
    assert native_results(library, "RNN", inputs, outputs, attributes) is None


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [2, 12, 40])
def test_rotations(library: Library, rotated: int, interleaved: int, dtype: DType) -> None:
    x = _numbers(2, 3, 5, 40).astype(dtype.storage)
    angles = _numbers(2, 1, 5, rotated // 2, seed=1)
    wide = np.zeros((2, 1, 5, rotated), dtype.storage)
    wide[..., ::2] = np.sin(angles)
    for sine in (wide[..., ::2], np.ascontiguousarray(wide[..., ::2])[:, :, :1]):
        cosine = np.cos(angles)[..., : rotated // 2].astype(dtype.storage)
        for given in (x, np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)):
            inputs, out = [given, cosine, sine], np.empty(x.shape, x.dtype)
            expected = numpy_results("RotaryEmbedding", inputs, [out], {"interleaved": interleaved})
            got = native_results(
                library, "RotaryEmbedding", inputs, [out], {"interleaved": interleaved}
            )
            assert got is not None
            unit = 1e-6 if dtype is DType.FLOAT32 else 1e-3
            np.testing.assert_allclose(got[0], expected[0], rtol=unit, atol=unit)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("inner", [(), (7,), (40, 30)])
def test_losses_of_labels(
    library: Library, inner: tuple[int, ...], dtype: str, reduction: str
) -> None:
    logarithms = _numbers(6, 5, *inner)
    shares = np.abs(_numbers(6, *inner, 5, seed=1))
    shares.reshape(-1, 5)[0] = (0, 1e-9, np.inf, 0.5, 0)
    labels = np.random.default_rng(2).integers(0, 5, (6, *inner)).astype(dtype)
    out = np.empty((6, *inner) if reduction == "none" else (), np.float32)
    for more in ({}, {"ignore_index": 2}):
        attributes = {"reduction": reduction, **more}
        for weights in (None, np.abs(_numbers(5, seed=3))):
            for turned in (False, True):
                x = np.ascontiguousarray(logarithms.T).T if turned else logarithms
                if not (turned and len(inner) > 1):
                    inputs = [x, labels, weights]
                    _check(library, "NegativeLogLikelihoodLoss", inputs, [out], attributes)
            _check(library, "Nll", [shares, labels, weights], [out], attributes)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("inner", [(), (7,), (40, 30)])
def test_gradients_of_losses_of_labels(
    library: Library, inner: tuple[int, ...], dtype: str, reduction: str
) -> None:
    shares = np.abs(_numbers(6, *inner, 5, seed=1))
    shares.reshape(-1, 5)[0] = (0, 1e-12, np.inf, np.nan, 0)
    labels = np.random.default_rng(2).integers(0, 5, (6, *inner)).astype(dtype)
    grad = _numbers(6, *inner, seed=4) if reduction == "none" else np.array(0.7, np.float32)
    weights = np.abs(_numbers(5, seed=3))
    weights[1] = 0
    out = np.empty((6, 5, *inner), np.float32)
    for more in ({}, {"ignore_index": 2}, {"ignore_index": int(labels.flat[0])}):
        attributes = {"reduction": reduction, **more}
        for scale in (None, weights):
            inputs = [grad, labels, scale]
            _check(library, "NegativeLogLikelihoodLossGrad", inputs, [out], attributes)
            result = np.empty_like(shares)
            _check(library, "NllGrad", [grad, shares, labels, scale], [result], attributes)


@pytest.mark.parametrize("opcode", ["NegativeLogLikelihoodLossGrad", "NllGrad"])
def test_labels_of_gradients_that_are_none(library: Library, opcode: str) -> None:
    grad, x, labels = _numbers(3), _numbers(3, 4), np.array([0, 4, 1])
    inputs = [grad, x, labels] if opcode == "NllGrad" else [grad, labels]
    with pytest.raises(NativeFailure, match="label 4 at"):
        native_results(library, opcode, inputs, [np.empty_like(x)], {"reduction": "none"})


@pytest.mark.parametrize("opcode", ["NegativeLogLikelihoodLoss", "Nll"])
def test_labels_that_are_none(library: Library, opcode: str) -> None:
    inputs = [_numbers(3, 4), np.array([0, 4, 1])]
    with pytest.raises(NativeFailure, match="label 4 at"):
        native_results(library, opcode, inputs, [np.empty(3, np.float32)], {"reduction": "none"})
