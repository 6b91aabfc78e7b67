"""Layers of com.microsoft that carry a state, against onnxruntime.

Windows of states are CUDA's alone: those are compared with the definition, in numpy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats, run_program
from tests.support.oracles import epsilon, one_node_model, run_op

_DOMAIN: Final = "com.microsoft"
_K, _V = 6, 5  # sizes of keys and values
_RULES: Final = ("linear", "gated", "delta", "gated_delta")


# -- linear attention ------------------------------------------------------------------------------


def _linear(
    rule: str,
    heads: tuple[int, int, int],
    rows: int,
    *,
    past: bool = False,
    per_key: bool = False,
    shared_beta: bool = False,
    window: int = 0,
) -> tuple[list[Array | None], dict[str, Any]]:
    """Operands and attributes; ``heads`` are those of queries, values and keys."""
    queries, values, keys = heads
    state = (2, values, _K, _V)
    decay = -np.abs(floats(2, rows, values * (_K if per_key else 1), seed=4))
    beta = np.abs(floats(2, rows, 1 if shared_beta else values, seed=5))
    operands = [
        floats(2, rows, queries * _K),
        floats(2, rows, keys * _K, seed=1),
        floats(2, rows, values * _V, seed=2),
        floats(*((window,) if window else ()), *state, seed=3) if past else None,
        decay if "gated" in rule else None,
        beta if "delta" in rule else None,
    ]
    attributes: dict[str, Any] = {"q_num_heads": queries, "kv_num_heads": values}
    return operands, {**attributes, "update_rule": rule}


@pytest.mark.parametrize("rule", _RULES)
@pytest.mark.parametrize("heads", [(4, 2, 2), (2, 4, 2), (3, 3, 1)], ids=str)
@pytest.mark.parametrize(("rows", "past"), [(1, True), (5, False), (5, True)])
def test_linear_attention(
    compare: Compare,
    rule: str,
    heads: tuple[int, int, int],
    rows: int,
    past: bool,  # noqa: FBT001
) -> None:
    compare("LinearAttention", *_linear(rule, heads, rows, past=past), outputs=2)


def test_linear_attention_that_forgets_each_key_for_itself(compare: Compare) -> None:
    case = _linear("gated_delta", (2, 2, 2), 4, per_key=True, shared_beta=True, past=True)
    compare("LinearAttention", *case, outputs=2)


def test_linear_attention_with_a_scale(compare: Compare) -> None:
    operands, attributes = _linear("linear", (2, 2, 2), 3)
    compare("LinearAttention", operands, {**attributes, "scale": 0.25, "chunk_size": 2}, outputs=2)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_window_of_states(rows: int, tmp_path: Path) -> None:
    """Slot j holds the state after token rows - 3 + j; there is none before the first token."""
    operands, attributes = _linear("gated", (2, 2, 2), rows, past=True, window=3)
    given = [array for array in operands if array is not None]
    model = one_node_model(
        "LinearAttention", given, {**attributes, "state_window": 3}, outputs=2, domain=_DOMAIN
    )
    node = model.graph.node[0]
    del node.input[:]
    node.input.extend(["x0", "x1", "x2", "x3", "x4"])
    expected = np.zeros((3, 2, 2, _K, _V), np.float32)
    state = given[3][2]
    for t in range(rows):
        key = given[1][:, t].reshape(2, 2, _K, 1)
        value = given[2][:, t].reshape(2, 2, 1, _V)
        state = np.exp(given[4][:, t]).reshape(2, 2, 1, 1) * state + key * value
        if t >= rows - 3:
            expected[t - (rows - 3)] = state
    feeds = {f"x{i}": array for i, array in enumerate(given)}
    for results in run_program(model, feeds, tmp_path):
        np.testing.assert_allclose(results[1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"update_rule": "momentum"}, "update_rule 'momentum' is none of linear"),
        ({"state_window": 9}, "state_window is 9, not 0 to 8"),
        ({"kv_num_heads": 3}, "2 query heads do not fit 3 heads"),
    ],
)
def test_linear_attention_refuses(attributes: dict[str, Any], message: str) -> None:
    operands, given = _linear("linear", (2, 2, 2), 2)
    with pytest.raises(ModelError, match=message):
        run_op("LinearAttention", operands[:3], {**given, **attributes}, outputs=2, domain=_DOMAIN)


# -- convolution -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("past", [False, True])
def test_causal_convolution(
    compare: Compare,
    taps: int,
    dilation: int,
    rows: int,
    last: int,
    past: bool,  # noqa: FBT001
) -> None:
    kept = (taps - 1) * dilation
    x = floats(2, rows, 3, 2) if last else floats(2, 6, rows)
    state = floats(2, kept, 3, 2, seed=3) if last else floats(2, 6, kept, seed=3)
    operands = [x, floats(6, 1, taps, seed=1), None, state if past else None]
    attributes = {"dilation": dilation, "channels_last": last}
    compare("CausalConvWithState", operands, attributes, outputs=2)


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
def test_causal_convolution_with_an_activation(compare: Compare, activation: str) -> None:
    operands = [floats(2, 6, 5), floats(6, 1, 3, seed=1), floats(6, seed=2)]
    compare("CausalConvWithState", operands, {"activation": activation}, outputs=2)


@pytest.mark.parametrize("rows", [1, 4])
def test_window_of_convolution_states(rows: int) -> None:
    x, weights, past = floats(2, 6, rows), floats(6, 1, 3, seed=1), floats(2, 2, 6, 2, seed=2)
    _, kept = run_op(
        "CausalConvWithState",
        [x, weights, np.zeros(6, np.float32), past],
        {"state_window": 2},
        outputs=2,
        domain=_DOMAIN,
    )
    line = np.concatenate([past[1], x], axis=2)
    expected = np.zeros((2, 2, 6, 2), np.float32)
    for slot, seen in enumerate((rows - 1, rows)):
        if seen > 0:
            expected[slot] = line[:, :, seen : seen + 2]
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activation": "relu"}, "activation 'relu' is not supported"),
        ({"ndim": 2}, "ndim must be 1"),
        ({"channels_last": 1}, "6 filters do not fit the channels"),
    ],
)
def test_causal_convolution_refuses(attributes: dict[str, Any], message: str) -> None:
    operands = [floats(2, 6, 5), floats(6, 1, 3)]
    with pytest.raises(ModelError, match=message):
        run_op("CausalConvWithState", operands, attributes, outputs=2, domain=_DOMAIN)


# -- gates -----------------------------------------------------------------------------------------

_DTYPES: Final = [np.float32, np.float16]


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_norm(compare: Compare, activation: str, dtype: type) -> None:
    x, gate = floats(2, 3, 24, dtype=dtype), floats(2, 3, 24, seed=1, dtype=dtype)
    attributes = {"activation": activation, "epsilon": 1e-3}
    operands = [x, floats(8, seed=2, dtype=dtype), gate]
    compare("GatedRMSNorm", operands, attributes, tolerance=8 * epsilon(dtype))


@pytest.mark.parametrize("dtype", _DTYPES)
def test_gated_add(compare: Compare, dtype: type) -> None:
    shapes = ((2, 3, 24), (2, 3, 24), (2, 3, 1))
    operands = [floats(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]
    compare("GatedAdd", operands, tolerance=epsilon(dtype))


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("outputs", [1, 2])
def test_linear_attention_gate(compare: Compare, outputs: int, dtype: type) -> None:
    a, b = floats(2, 3, 4, dtype=dtype), floats(2, 3, 4, seed=1, dtype=dtype)
    operands = [a, floats(4), -np.abs(floats(4, seed=1)), b if outputs == 2 else None]
    compare("LinearAttentionGate", operands, outputs=outputs, tolerance=8 * epsilon(dtype))


@pytest.mark.parametrize(
    ("attributes", "width", "message"),
    [({"activation": "tanh"}, 8, "activation 'tanh'"), ({}, 7, "cannot be cut into groups of 7")],
)
def test_gated_norm_refuses(attributes: dict[str, Any], width: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op(
            "GatedRMSNorm",
            [floats(2, 3, 24), floats(width), floats(2, 3, 24)],
            attributes,
            domain=_DOMAIN,
        )
