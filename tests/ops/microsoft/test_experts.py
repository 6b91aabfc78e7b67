"""Mixtures of experts, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import epsilon, run_op

_DOMAIN: Final = "com.microsoft"
_TOKENS, _EXPERTS, _HIDDEN, _INNER = 6, 5, 16, 32
_SWIGLU: Final[dict[str, Any]] = {
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "activation_alpha": 1.702,
    "activation_beta": 1.0,
}


def _moe(inner: int = _INNER, *, bias: bool = True, third: bool = False) -> list[Array | None]:
    """Operands of MoE, whose first layer gives ``inner`` numbers, for a second one of _INNER."""
    return [
        2 * floats(_TOKENS, _HIDDEN),
        2 * floats(_TOKENS, _EXPERTS, seed=1),
        floats(_EXPERTS, inner, _HIDDEN, seed=2),
        floats(_EXPERTS, inner, seed=3) if bias else None,
        floats(_EXPERTS, _HIDDEN, _INNER, seed=4),
        floats(_EXPERTS, _HIDDEN, seed=5) if bias else None,
        floats(_EXPERTS, _INNER, _HIDDEN, seed=6) if third else None,
        floats(_EXPERTS, _INNER, seed=7) if third and bias else None,
    ]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("k", [1, 2, _EXPERTS])
@pytest.mark.parametrize("normalized", [0, 1])
def test_mixture(compare: Compare, activation: str, k: int, normalized: int) -> None:
    attributes = {"activation_type": activation, "k": k, "normalize_routing_weights": normalized}
    compare("MoE", _moe(), attributes)


@pytest.mark.parametrize("limit", [None, 0.7])
def test_mixture_with_swiglu(compare: Compare, limit: float | None) -> None:
    attributes = _SWIGLU if limit is None else {**_SWIGLU, "swiglu_limit": limit}
    compare("MoE", _moe(2 * _INNER), {**attributes, "k": 2})


def test_mixture_without_biases_for_a_batch(compare: Compare) -> None:
    x, *rest = _moe(bias=False)
    assert x is not None
    compare("MoE", [x.reshape(2, 3, _HIDDEN), *rest], {"k": 2})


def test_among_equal_scores_later_experts_are_taken(compare: Compare) -> None:
    operands = _moe()
    operands[1] = np.zeros((_TOKENS, _EXPERTS), np.float32)
    compare("MoE", operands, {"k": 2})


def _silu(x: Array) -> Array:
    result: Array = x / (1 + np.exp(-x))
    return result


def _dense(operands: list[Array | None], k: int, *, side_by_side: bool) -> Array:
    """What onnxruntime does on GPUs only, in float64: every expert computes every token."""
    x, router, w1, b1, w2, b2, w3, b3 = (
        np.zeros(0) if a is None else a.astype(np.float64) for a in operands
    )
    scores = np.exp(router) / np.exp(router).sum(axis=1, keepdims=True)
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    weights = np.where(ranks < k, scores, 0)
    inner = np.einsum("th,enh->etn", x, w1) + b1[:, None]
    if side_by_side:
        gate, linear = np.split(inner, 2, axis=2)
        inner = gate / (1 + np.exp(-1.702 * gate)) * (linear + 1)
    else:
        inner = _silu(inner) * (np.einsum("th,enh->etn", x, w3) + b3[:, None])
    answers = np.einsum("etn,ehn->eth", inner, w2) + b2[:, None]
    result: Array = np.einsum("te,eth->th", weights, answers)
    return result


@pytest.mark.parametrize("side_by_side", [False, True])
def test_gates_as_on_gpus(side_by_side: bool) -> None:  # noqa: FBT001
    operands = _moe(2 * _INNER if side_by_side else _INNER, third=not side_by_side)
    attributes: dict[str, Any] = {"activation_type": "silu", "k": 2}
    if side_by_side:
        attributes = {**_SWIGLU, "swiglu_fusion": 2, "k": 2}
        del operands[6:]
    (y,) = run_op("MoE", operands, attributes, domain=_DOMAIN)
    expected = _dense([*operands, None, None][:8], 2, side_by_side=side_by_side)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attributes", "inner", "message"),
    [
        ({"k": 6}, _INNER, "k is 6, but there are 5 experts"),
        ({"use_sparse_mixer": 1}, _INNER, "use_sparse_mixer is not supported"),
        ({"activation_type": "tanh"}, _INNER, "activation_type 'tanh' is none of"),
        ({"activation_type": "swiglu"}, 2 * _INNER, "swiglu of 64 columns needs swiglu_fusion"),
    ],
)
def test_mixtures_that_are_refused(attributes: dict[str, Any], inner: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("MoE", _moe(inner)[:6], attributes, domain=_DOMAIN)


def test_weights_that_lie_the_other_way_round() -> None:
    operands = _moe()
    operands[2] = floats(_EXPERTS, _HIDDEN, _INNER)
    with pytest.raises(ModelError, match="do not fit tokens of 16 numbers"):
        run_op("MoE", operands[:6], {}, domain=_DOMAIN)


# -- few bits --------------------------------------------------------------------------------------

_WIDTH: Final = 64  # of tokens


def _qmoe(
    bits: int,
    block: int,
    dtype: type = np.float32,
    *,
    inner: int = 32,
    zeros: bool = False,
    bias: bool = True,
) -> list[Array | None]:
    """Operands of QMoE up to the zero points; blocks of 0: a scale for each row."""
    rng = np.random.default_rng([bits, block])

    def layer(rows: int, columns: int) -> list[Array | None]:
        blocks = columns // block if block else 1
        drawn: Array = np.abs(rng.normal(size=(_EXPERTS, rows, blocks))) / 20 + 0.01
        scales: Array = drawn.astype(dtype)
        return [
            rng.integers(0, 256, (_EXPERTS, rows, columns * bits // 8), np.uint8),
            scales if block else scales.reshape(_EXPERTS, rows),
            floats(_EXPERTS, rows, seed=rows, dtype=dtype) if bias else None,
        ]

    def zero(rows: int, columns: int) -> Array | None:
        if not zeros:
            return None
        if not block:
            return rng.integers(0, 256, (_EXPERTS, -(-rows * bits // 8)), np.uint8)
        return rng.integers(0, 256, (_EXPERTS, rows, -(-columns // block * bits // 8)), np.uint8)

    x, router = (2 * floats(_TOKENS, n, seed=n, dtype=dtype) for n in (_WIDTH, _EXPERTS))
    return [
        *(x, router, *layer(inner, _WIDTH), *layer(_WIDTH, 32), None, None, None),
        *(zero(inner, _WIDTH), zero(_WIDTH, 32)),
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("zeros", [False, True])
def test_mixture_of_few_bits(
    compare: Compare,
    bits: int,
    block: int,
    zeros: bool,  # noqa: FBT001
    dtype: type,
) -> None:
    attributes = {"activation_type": "silu", "k": 2, "expert_weight_bits": bits}
    if block:
        attributes["block_size"] = block
    operands = _qmoe(bits, block, dtype, zeros=zeros)
    compare("QMoE", operands, attributes, tolerance=16 * epsilon(dtype))


@pytest.mark.parametrize("limit", [None, 0.9])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_mixture_of_few_bits_with_swiglu(
    compare: Compare, limit: float | None, dtype: type
) -> None:
    attributes = _SWIGLU if limit is None else {**_SWIGLU, "swiglu_limit": limit}
    operands = _qmoe(4, 32, dtype, inner=64)
    attributes = {**attributes, "block_size": 32, "k": 2}
    compare("QMoE", operands, attributes, tolerance=16 * epsilon(dtype))


@pytest.mark.parametrize("normalized", [0, 1])
def test_weights_of_routes_that_are_given(compare: Compare, normalized: int) -> None:
    given = np.abs(floats(_TOKENS, _EXPERTS, seed=8))
    attributes = {"k": 2, "normalize_routing_weights": normalized}
    compare("QMoE", [*_qmoe(4, 0, bias=False), None, given], attributes)


def test_weights_that_are_known(compare: Compare) -> None:
    compare("QMoE", _qmoe(4, 0), {"k": 3}, constants=(2, 3, 5, 6))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"quant_type": "nvfp4"}, "quant_type must be 'int'"),
        ({"expert_weight_bits": 3}, "of 3 bits are not supported"),
        ({"block_size": 24}, "in blocks of 24 are not supported"),
    ],
)
def test_few_bits_that_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("QMoE", _qmoe(4, 0), attributes, domain=_DOMAIN)
