"""Scores that softmax counts beside those of keys, against numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from tests.support.oracles import epsilon, import_graph, one_node_model, run_ir

_HEADS, _ROWS, _KEYS, _DEPTH = 4, 5, 7, 6
_SINKS: Final = np.array([0.5, -2.0, 30.0, -np.inf])


def _values(*shape: int, dtype: Any = np.float32) -> Array:
    drawn: Array = np.random.default_rng(shape).standard_normal(shape)
    return drawn.astype(dtype)


def _operands(dtype: Any) -> list[Array | None]:
    kept = _values(2, 2, _KEYS, _DEPTH, dtype=dtype), _values(2, 2, _KEYS, 3, dtype=dtype)
    return [_values(2, _HEADS, _ROWS, _DEPTH, dtype=dtype), *kept]


def _reference(operands: list[Array | None], cap: float) -> tuple[Array, Array]:
    """The result and the weights, in float64: of one more key, whose value is zero."""
    q, k, v = (np.zeros(0) if x is None else x.astype(np.float64) for x in operands)
    scores = 0.4 * q @ np.repeat(k, 2, axis=1).swapaxes(2, 3)
    if cap:
        scores = cap * np.tanh(scores / cap)
    more = np.broadcast_to(_SINKS[:, None, None], (*scores.shape[:3], 1))
    powers = np.exp(np.concatenate([scores, more], axis=3))
    weights = (powers / powers.sum(axis=3, keepdims=True))[..., :-1]
    return weights @ np.repeat(v, 2, axis=1), weights


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("cap", [0.0, 1.5])
@pytest.mark.parametrize("heads_last", [0, 1])
def test_sinks(dtype: type, cap: float, heads_last: int) -> None:
    operands = _operands(dtype)
    attributes = {"scale": 0.4, "softcap": cap, "heads_last": heads_last, "scores": 3}
    y, weights = run_ir("Attention", [*operands, None, None, _SINKS.astype(dtype)], attributes)
    expected, expected_weights = _reference(operands, cap)
    if heads_last:
        expected = expected.transpose(0, 2, 1, 3)
    bound = 64 * max(epsilon(dtype), 1e-8)
    np.testing.assert_allclose(y, expected, rtol=bound, atol=bound)
    np.testing.assert_allclose(weights, expected_weights, rtol=bound, atol=bound)


def test_queries_that_see_nothing_but_the_sink() -> None:
    hidden = np.zeros((_ROWS, _KEYS), np.bool_)
    operands = [*_operands(np.float32), hidden, None, _SINKS.astype(np.float32)]
    (y,) = run_ir("Attention", operands, {"scale": 1.0})
    assert not y.any()


@pytest.mark.parametrize("shape", [(3,), (4, 1)])
def test_sinks_that_do_not_fit(shape: tuple[int, ...]) -> None:
    types = [
        None if array is None else TensorType(DType.of(array.dtype), array.shape)
        for array in _operands(np.float32)
    ]
    sinks = TensorType(DType.FLOAT32, shape)
    with pytest.raises(ModelError, match="sinks are one float32 for each of 4 heads"):
        infer_types("Attention", [*types, None, None, sinks], {"scale": 1.0})


def test_sinks_have_no_gradient() -> None:
    empty = np.zeros((2, 2, 0, 8), np.float32)
    inputs: list[Array | None] = [
        *(_values(2, 3, 32), _values(2, 3, 16), _values(2, 3, 16), empty, empty),
        *(np.array([2, 2], np.int32), np.array(3, np.int32)),
    ]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}
    model = one_node_model(
        "GroupQueryAttention", inputs, attributes, domain="com.microsoft", constants=(6,)
    )
    graph = import_graph(model)
    y = graph.outputs[0]
    seed = graph.add_constant("seed", y.type, np.ones(y.type.shape, np.float32))
    with pytest.raises(ModelError, match="Attention with sinks has no gradient"):
        differentiate(graph, {y: seed}, [graph.tensors["x0"]])
