"""Recurrent layers over steps, or samples, of which data decides the number: as onnxruntime."""

from __future__ import annotations

from typing import Final

import pytest

from popc_runtime.format import Array
from tests.support.sized import compare, draw, model_of

_GATES: Final = {"GRU": 3, "LSTM": 4, "RNN": 1}
_STATES: Final = {"GRU": "h", "LSTM": "h, cell", "RNN": "h"}
_KEPT: Final = ([1, 1, 1, 1], [1, -1, 2, 3], [-1, -1, 5, -1])  # rows with a positive first element


def _weights(op_type: str, directions: int) -> str:
    """``w`` and ``q`` of layers of three units, made of y [3, 5]."""
    gates = ", ".join(["y"] * _GATES[op_type])
    both = ", ".join(["w1"] * directions)
    return f"""
    stacked = Concat<axis = 0>({gates})
    columns3 = Transpose(y)
    products = MatMul(stacked, columns3)
    w1 = Unsqueeze(stacked, l0)
    q1 = Unsqueeze(products, l0)
    w = Concat<axis = 0>({both})
    q = Concat<axis = 0>({both.replace("w1", "q1")})
"""


def _samples() -> list[dict[str, Array]]:
    """Inputs that keep all rows, some, and one."""
    samples = [draw(1) for _ in _KEPT]
    for inputs, kept in zip(samples, _KEPT, strict=True):
        inputs["x"][:, 0] = kept
    return samples


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", list(_GATES))
def test_steps(op_type: str, direction: str) -> None:
    """The last state is that behind the last step that counts.

    Each step adds what onnxruntime's Tanh and Sigmoid are off by, some millionths.
    """
    states = _STATES[op_type]
    body = f"""{_weights(op_type, 2 if direction == "bidirectional" else 1)}
    s = Unsqueeze(r, l1)
    out, {states} = {op_type}<hidden_size = 3, direction = "{direction}">(s, w, q)
"""
    outputs = ", ".join(f"float {name}" for name in ("out", *states.split(", ")))
    compare(model_of(body, outputs), _samples(), 1e-5)


@pytest.mark.parametrize("op_type", list(_GATES))
def test_samples(op_type: str) -> None:
    body = f"""{_weights(op_type, 1)}
    s = Unsqueeze(r, l0)
    out, h = {op_type}<hidden_size = 3>(s, w, q)
"""
    compare(model_of(body, "float out, float h"), _samples(), 1e-5)


def test_steps_go_on_into_other_operators() -> None:
    """As in speech of which durations decide the length: a layer, a product, a mean over steps."""
    body = f"""{_weights("LSTM", 2)}
    s = Unsqueeze(r, l1)
    all, h = LSTM<hidden_size = 3, direction = "bidirectional">(s, w, q)
    t = Transpose<perm = [2, 0, 1, 3]>(all)
    shape = Constant<value_ints = [1, -1, 6]>()
    rows = Reshape(t, shape)
    out = ReduceMean<keepdims = 0>(rows, l1)
"""
    compare(model_of(body), _samples(), 1e-5)
