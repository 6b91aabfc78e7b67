"""Recurrent layers of ai.graphcore, against a plain computation step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import run_op

_DOMAIN: Final = "ai.graphcore"
_STEPS, _BATCH, _WIDTH, _HIDDEN = 5, 3, 4, 2
_GATES: Final = {"LSTM": 4, "GRU": 3, "DynamicGRU": 3, "AUGRU": 3}
_OUTPUTS: Final = {"LSTM": 3, "GRU": 2, "DynamicGRU": 2, "AUGRU": 2}
_LENGTHS: Final = (2, 5, 3)


def _softmax(x: Array) -> Array:
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Array = exps / exps.sum(axis=-1, keepdims=True)
    return result


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


_FUNCTIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "tanh": np.tanh,
}


def _values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def _operands(
    op_type: str,
    *,
    biases: int = 1,
    initial: bool = True,
    lengths: Sequence[int] | None = _LENGTHS,
) -> list[Array | None]:
    """All operands of a layer; ``biases``: 0, or one or two for each gate."""
    gates = _GATES[op_type]
    state = (2, _BATCH, _HIDDEN) if op_type == "LSTM" else (_BATCH, _HIDDEN)
    shape = (gates, _HIDDEN) if biases == 1 else (gates, 2, _HIDDEN)
    operands: list[Array | None] = [
        _values(_STEPS, _BATCH, _WIDTH),
        _values(gates, _WIDTH + _HIDDEN, _HIDDEN, seed=1),
        _values(*shape, seed=2) if biases else None,
        _values(*state, seed=3) if initial else None,
        None if lengths is None else np.array(lengths, np.int32),
    ]
    if op_type == "AUGRU":
        operands.append(np.random.default_rng(4).uniform(0, 1, (_BATCH, _STEPS)))
    while operands[-1] is None:
        operands.pop()
    return operands


def _expected(
    op_type: str,
    operands: Sequence[Array | None],
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    reset_after: int = 0,
) -> list[Array]:
    """The full output and the final states."""
    padded: list[Array | None] = [*operands, *[None] * (6 - len(operands))]
    x, weights, biases, initial, lengths, scores = padded
    assert x is not None
    assert weights is not None
    f, g = _FUNCTIONS[recurrent_activation], _FUNCTIONS[activation]
    w, r = weights[:, :_WIDTH], weights[:, _WIDTH:]
    bias = np.zeros((len(weights), 2, _HIDDEN))
    if biases is not None:
        bias[:, : 1 if biases.ndim == 2 else 2] = biases.reshape(len(weights), -1, _HIDDEN)
    h = c = np.zeros((_BATCH, _HIDDEN))
    if initial is not None:
        h, c = (initial[0], initial[1]) if op_type == "LSTM" else (initial, c)
    outputs: list[Array] = []
    for step in range(_STEPS):
        of_input = [x[step] @ w[k] + bias[k, 0] for k in range(len(weights))]
        of_state = [h @ r[k] + bias[k, 1] for k in range(len(weights))]
        both = [one + two for one, two in zip(of_input, of_state, strict=True)]
        if op_type == "LSTM":
            new_c = f(both[0]) * c + f(both[1]) * g(both[2])
            new_h = f(both[3]) * g(new_c)
        else:
            update, reset, new_c = f(both[0]), f(both[1]), c
            if scores is not None:
                update = update * (1 - scores[:, step, None])
            late = reset * of_state[2] if reset_after else (reset * h) @ r[2] + bias[2, 1]
            new_h = update * h + (1 - update) * g(of_input[2] + late)
        alive = np.ones((_BATCH, 1), bool) if lengths is None else step < lengths[:, None]
        h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
        outputs.append(np.where(alive, new_h, 0))
    return [np.stack(outputs), c, h] if op_type == "LSTM" else [np.stack(outputs), h]


def _run(op_type: str, operands: Sequence[Array | None], **attributes: Any) -> list[Array]:
    return run_op(op_type, operands, attributes, outputs=_OUTPUTS[op_type], domain=_DOMAIN)


def _check(op_type: str, operands: Sequence[Array | None], **attributes: Any) -> None:
    actual = _run(op_type, operands, **attributes)
    for ours, wanted in zip(actual, _expected(op_type, operands, **attributes), strict=True):
        assert ours.shape == wanted.shape
        np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("op_type", _GATES)
@pytest.mark.parametrize("lengths", [_LENGTHS, (_STEPS,) * _BATCH])
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_layers(op_type: str, lengths: Sequence[int], biases: int) -> None:
    _check(op_type, _operands(op_type, lengths=lengths, biases=biases))


@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
@pytest.mark.parametrize("initial", [False, True])
def test_optional_operands(op_type: str, *, initial: bool) -> None:
    _check(op_type, _operands(op_type, lengths=None, initial=initial))
    _check(op_type, _operands(op_type, lengths=None, initial=initial, biases=0))


def test_attention_without_lengths() -> None:
    _check("AUGRU", _operands("AUGRU", lengths=None))


@pytest.mark.parametrize("op_type", ["GRU", "DynamicGRU", "AUGRU"])
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_reset_after(op_type: str, biases: int) -> None:
    _check(op_type, _operands(op_type, biases=biases), reset_after=1)


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "AUGRU"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "softmax", "sigmoid", "linear"])
@pytest.mark.parametrize("recurrent", ["sigmoid", "hard_sigmoid", "softmax", "tanh"])
def test_activations(op_type: str, activation: str, recurrent: str) -> None:
    _check(op_type, _operands(op_type), activation=activation, recurrent_activation=recurrent)


@pytest.mark.parametrize("op_type", _GATES)
def test_last_output(op_type: str) -> None:
    operands = _operands(op_type)
    _, *states = _run(op_type, operands)
    last, *same = _run(op_type, operands, output_full_sequence=0)
    np.testing.assert_array_equal(last, states[-1])
    for a, b in zip(states, same, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op_type", _GATES)
def test_batch_first(op_type: str) -> None:
    operands = _operands(op_type)
    expected = _run(op_type, operands)
    assert operands[0] is not None
    swapped = [operands[0].swapaxes(0, 1).copy(), *operands[1:]]
    y, *states = _run(op_type, swapped, time_major=0)
    np.testing.assert_array_equal(y, expected[0].swapaxes(0, 1))
    for a, b in zip(states, expected[1:], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_weights_as_tensorflow_has_them(op_type: str) -> None:
    """The gates side by side; those of LSTM in another order than PopART's."""
    operands = _operands(op_type)
    expected = _run(op_type, operands)
    order = (1, 0, 2, 3)[: _GATES[op_type]] if op_type == "LSTM" else (0, 1, 2)
    weights, biases = operands[1], operands[2]
    assert weights is not None
    assert biases is not None
    kernel = np.concatenate([weights[gate] for gate in order], axis=1)
    given = [operands[0], kernel, biases[list(order)], *operands[3:]]
    for a, b in zip(_run(op_type, given), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float16, 1e-2)])
@pytest.mark.parametrize("op_type", ["LSTM", "AUGRU"])
def test_dtypes(op_type: str, dtype: Any, tolerance: float) -> None:
    operands = _operands(op_type)
    cast = [x.astype(dtype) if x is not None and x.dtype.kind == "f" else x for x in operands]
    for a, b in zip(_run(op_type, cast), _expected(op_type, operands), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


_X: Final = _values(_STEPS, _BATCH, _WIDTH)
_W: Final = _values(3, _WIDTH + _HIDDEN, _HIDDEN)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "message"),
    [
        ("GRU", [_X], {}, "takes 2 to 5 inputs, but 1 are given"),
        ("DynamicGRU", [_X, _W], {}, "takes 5 inputs, but 2 are given"),
        ("AUGRU", [_X, _W], {}, "takes 6 inputs, but 2 are given"),
        ("GRU", [_X[0], _W], {}, "X must have 3 dimensions"),
        ("LSTM", [_X, _W], {}, r"neither \[4, 4 \+ H, H\] nor \[4 \+ H, 4 \* H\]"),
        ("GRU", [_X, _W[:, 1:]], {}, r"neither \[3, 4 \+ H, H\]"),
        ("GRU", [_X, _W, _X[0]], {}, r"biases float64\[3,4\] are neither \[3, 2\]"),
        ("GRU", [_X, _W, None, _X[0]], {}, r"the initial state must have shape \[3, 2\]"),
        ("GRU", [_X, _W, None, None, _X[0, :, 0]], {}, "the lengths must be integers"),
        ("GRU", [_X, _W.astype(np.float32)], {}, "operands must have one element type"),
        ("GRU", [_X, _W], {"activation": "gelu"}, "activation 'gelu' is not one of hard_sigmoid"),
    ],
)
def test_wrong_operands_and_activations_are_refused(
    op_type: str, operands: list[Array | None], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op(op_type, operands, attributes, outputs=2, domain=_DOMAIN)
