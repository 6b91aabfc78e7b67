"""Recurrent layers, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_op

_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
_LAYERS: Final = pytest.mark.parametrize("op_type", sorted(_GATES))
_DIRECTIONS: Final = pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])


def _operands(
    op_type: str,
    *,
    directions: int = 1,
    steps: int = 6,
    batch: int = 3,
    lengths: list[int] | None = None,
    bare: bool = False,
    peepholes: bool = False,
) -> list[Array | None]:
    """Operands X, W, R and (unless ``bare``) all others; width 5, hidden size 4."""
    random = np.random.default_rng(0)

    def values(*shape: int) -> Array:
        return (random.standard_normal(shape) * 0.5).astype(np.float32)

    rows = _GATES[op_type] * 4
    operands: list[Array | None] = [
        values(steps, batch, 5),
        values(directions, rows, 5),
        values(directions, rows, 4),
        None if bare else values(directions, 2 * rows),
        None if lengths is None else np.array(lengths, np.int32),
    ]
    if not bare:
        operands.append(values(directions, batch, 4))
    if not bare and op_type == "LSTM":
        operands.append(values(directions, batch, 4))
        if peepholes:
            operands.append(values(directions, 12))
    while operands[-1] is None:
        operands.pop()
    return operands


def _check(
    op_type: str,
    operands: list[Array | None],
    *,
    constant: bool = True,
    opset: int = 22,
    **attributes: Any,
) -> None:
    weights = [index for index in (1, 2, 3, 7) if constant and index < len(operands)]
    assert_matches_onnxruntime(
        op_type,
        operands,
        {"hidden_size": 4, **attributes},
        opset=opset,
        outputs=3 if op_type == "LSTM" else 2,
        constants=[index for index in weights if operands[index] is not None],
        rtol=1e-4,
        atol=2e-6,
    )


@_LAYERS
@_DIRECTIONS
@pytest.mark.parametrize("lengths", [None, [2, 6, 4], [6, 6, 6]])
@pytest.mark.parametrize(("constant", "bare"), [(True, False), (False, False), (True, True)])
def test_directions_and_lengths(
    op_type: str, direction: str, lengths: list[int] | None, *, constant: bool, bare: bool
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    operands = _operands(op_type, directions=directions, lengths=lengths, bare=bare)
    _check(op_type, operands, constant=constant, direction=direction)


@_LAYERS
@_DIRECTIONS
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_one_sample(op_type: str, direction: str, steps: int) -> None:
    directions = 2 if direction == "bidirectional" else 1
    operands = _operands(op_type, directions=directions, steps=steps, batch=1)
    _check(op_type, operands, direction=direction)


@pytest.mark.parametrize("lengths", [None, [5, 1, 3]])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("constant", "bare"), [(True, False), (False, False), (True, True)])
def test_gru_linear_before_reset(
    lengths: list[int] | None, direction: str, *, constant: bool, bare: bool
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    operands = _operands("GRU", directions=directions, lengths=lengths, bare=bare)
    _check("GRU", operands, constant=constant, direction=direction, linear_before_reset=1)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"clip": 0.3}, {"input_forget": 1}, {"input_forget": 1, "clip": 0.2}],
)
@pytest.mark.parametrize("peepholes", [False, True])
def test_lstm_variants(attributes: dict[str, Any], *, peepholes: bool, constant: bool) -> None:
    _check("LSTM", _operands("LSTM", peepholes=peepholes), constant=constant, **attributes)


@pytest.mark.parametrize(("op_type", "late"), [("RNN", 0), ("GRU", 0), ("GRU", 1)])
def test_clip(op_type: str, late: int) -> None:
    attributes: dict[str, Any] = {"linear_before_reset": late} if op_type == "GRU" else {}
    _check(op_type, _operands(op_type), clip=0.3, **attributes)


@pytest.mark.parametrize(
    ("function", "alpha", "beta"),
    [
        ("Affine", [0.7], [0.4]),
        ("Elu", [], []),
        ("Elu", [0.7], []),
        ("HardSigmoid", [], []),
        ("HardSigmoid", [0.7], [0.4]),
        ("LeakyRelu", [], []),
        ("LeakyRelu", [0.7], []),
        ("Relu", [], []),
        ("ScaledTanh", [0.7], [0.4]),
        ("Sigmoid", [], []),
        ("Softplus", [], []),
        ("Softsign", [], []),
        ("Tanh", [], []),
        ("ThresholdedRelu", [0.2], []),
    ],
)
def test_activation_functions(function: str, alpha: list[float], beta: list[float]) -> None:
    parameters = {"activation_alpha": alpha, "activation_beta": beta}
    given: dict[str, Any] = {name: values for name, values in parameters.items() if values}
    for op_type, functions in (
        ("RNN", [function]),
        ("GRU", ["Sigmoid", function]),
        ("LSTM", [function, "Tanh", "Tanh"]),
        ("LSTM", ["Sigmoid", function, "Tanh"]),
        ("LSTM", ["Sigmoid", "Tanh", function]),
    ):
        _check(op_type, _operands(op_type, steps=3), activations=functions, **given)


def test_directions_with_different_functions() -> None:
    functions = ["LeakyRelu", "Tanh", "HardSigmoid", "Elu"]
    _check(
        "GRU",
        _operands("GRU", directions=2, lengths=[6, 2, 5]),
        direction="bidirectional",
        activations=functions,
        activation_alpha=[0.3, 0.1, 0.5],
        activation_beta=[0.4],
    )


@_LAYERS
@pytest.mark.parametrize("opset", [7, 14])
def test_older_opsets(op_type: str, opset: int) -> None:
    _check(op_type, _operands(op_type), opset=opset)


@_LAYERS
@_DIRECTIONS
def test_batch_first(op_type: str, direction: str) -> None:
    """onnxruntime has no layout 1: compare with layout 0."""
    directions = 2 if direction == "bidirectional" else 1
    operands = _operands(op_type, directions=directions, lengths=[4, 6, 1])
    attributes = {"hidden_size": 4, "direction": direction}
    outputs = 3 if op_type == "LSTM" else 2
    y, *states = run_op(op_type, operands, attributes, outputs=outputs)
    swapped = [
        x.swapaxes(0, 1).copy() if x is not None and index in (0, 5, 6) else x
        for index, x in enumerate(operands)
    ]
    actual = run_op(op_type, swapped, {**attributes, "layout": 1}, outputs=outputs)
    expected = [y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states)]
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@_LAYERS
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 3e-3), (np.float64, 1e-6)])
def test_dtypes(op_type: str, dtype: Any, tolerance: float) -> None:
    operands = _operands(op_type, directions=2)
    attributes = {"hidden_size": 4, "direction": "bidirectional"}
    outputs = 3 if op_type == "LSTM" else 2
    expected = run_op(op_type, operands, attributes, outputs=outputs)
    cast = [None if x is None else x.astype(dtype) for x in operands]
    for a, b in zip(run_op(op_type, cast, attributes, outputs=outputs), expected, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@_LAYERS
def test_known_full_lengths_and_no_steps(op_type: str) -> None:
    full = _operands(op_type, lengths=[6, 6, 6])
    with_lengths = run_op(op_type, full, {"hidden_size": 4}, constants=[4])
    full[4] = None
    np.testing.assert_array_equal(with_lengths, run_op(op_type, full, {"hidden_size": 4}))
    empty = _operands(op_type, steps=0)
    y, state = run_op(op_type, empty, {"hidden_size": 4}, outputs=2)
    assert y.shape == (0, 1, 3, 4)
    assert empty[5] is not None
    np.testing.assert_array_equal(state, empty[5])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "unknown direction 'sideways'"),
        ({"activations": ["Tanh"]}, "2 activation functions are needed, not 1"),
        ({"activations": ["Sigmoid", "Gelu"]}, "unknown activation function 'gelu'"),
        ({"direction": "bidirectional"}, r"W must have shape \[2, 12, 5\], not \[1, 12, 5\]"),
    ],
)
def test_wrong_directions_activations_and_shapes_are_refused(
    attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("GRU", _operands("GRU"), {"hidden_size": 4, **attributes})
