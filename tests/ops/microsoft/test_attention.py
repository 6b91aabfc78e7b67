"""Attention operators of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import (
    assert_matches_onnxruntime,
    one_node_model,
    run_model,
    run_onnxruntime,
    run_op,
)

_DOMAIN = "com.microsoft"
_B, _S, _N, _H = 2, 4, 2, 8  # batch, queries, heads, size of a head
_D = _N * _H


def _floats(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) / np.float32(2)


def _compare(
    op_type: str, inputs: list[Array | None], attributes: dict[str, Any], outputs: int = 1
) -> None:
    assert_matches_onnxruntime(
        op_type, inputs, attributes, domain=_DOMAIN, outputs=outputs, rtol=1e-4, atol=1e-5
    )


# -- Attention -------------------------------------------------------------------------------------

_MASKS = {
    "none": None,
    "lengths": np.array([4, 2], np.int32),
    "ends-and-starts": np.array([4, 3, 1, 0], np.int32),
    "keys": np.array([[1, 1, 0, 1], [1, 1, 1, 0]], np.int32),
    "queries-and-keys": np.random.default_rng(1).integers(0, 2, (_B, _S, _S), np.int32),
    "nothing-visible": np.zeros((_B, _S), np.int32),
}


def _packed(width: int = 3 * _D) -> list[Array | None]:
    return [_floats((_B, _S, 12)), _floats((12, width), 1), _floats((width,), 2)]


@pytest.mark.parametrize("mask", _MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_masks(mask: str, unidirectional: int) -> None:
    attributes = {"num_heads": _N, "unidirectional": unidirectional}
    _compare("Attention", [*_packed(), _MASKS[mask]], attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale": 0.3},
        {"mask_filter_value": -1.5},
        {"qkv_hidden_sizes": [_D, _D, 6]},
        {"num_heads": 4},
    ],
)
def test_attention_attributes(attributes: dict[str, Any]) -> None:
    width = sum(attributes.get("qkv_hidden_sizes", (_D,) * 3))
    attributes = {"num_heads": _N, **attributes}
    _compare("Attention", [*_packed(width), _MASKS["keys"]], attributes)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_with_past(unidirectional: int, masked: bool) -> None:  # noqa: FBT001
    past = _floats((2, _B, _N, 3, _H), 5)
    mask = np.random.default_rng(1).integers(0, 2, (_B, _S + 3), np.int32) if masked else None
    attributes = {"num_heads": _N, "unidirectional": unidirectional}
    _compare("Attention", [*_packed(), mask, past], attributes, outputs=2)


@pytest.mark.parametrize("shape", [(_B, _N, _S, _S), (1, _N, _S, _S), (1, 1, _S, _S)])
def test_attention_bias(shape: tuple[int, ...]) -> None:
    inputs = [*_packed(), _MASKS["lengths"], None, _floats(shape, 7)]
    _compare("Attention", inputs, {"num_heads": _N})


def test_attention_without_bias_but_with_square_mask() -> None:
    """onnxruntime has masks of 4 dimensions on other devices only: that of 3 is the oracle."""
    mask = np.tril(np.ones((1, 1, 6, 6), np.int32))
    x, weights = _packed()[:2]
    (y,) = run_op("Attention", [x, weights, None, mask], {"num_heads": _N}, domain=_DOMAIN)
    square = np.tril(np.ones((_B, _S, _S), np.int32), 0)
    inputs = [x, weights, None, square]
    (expected,) = run_op("Attention", inputs, {"num_heads": _N}, domain=_DOMAIN)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_attention_refuses_heads_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match="cannot be split into 5 heads"):
        run_op("Attention", _packed(), {"num_heads": 5}, domain=_DOMAIN)
    with pytest.raises(ModelError, match="rotary embedding"):
        run_op("Attention", _packed(), {"num_heads": _N, "do_rotary": 1}, domain=_DOMAIN)
    inputs = [*_packed(), np.ones(3, np.int32)]
    with pytest.raises(ModelError, match="3 lengths does not fit a batch of 2"):
        run_op("Attention", inputs, {"num_heads": _N}, domain=_DOMAIN)


# -- MultiHeadAttention ----------------------------------------------------------------------------


def _qkv(rows: int = _S, keys: int = 5, v_width: int = _D) -> list[Array | None]:
    return [
        _floats((_B, rows, _D)),
        _floats((_B, keys, _D), 1),
        _floats((_B, keys, v_width), 2),
    ]


_KEY_MASKS = {
    "none": None,
    "lengths": np.array([5, 3], np.int32),
    "keys": np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], np.int32),
    "queries-and-keys": np.random.default_rng(1).integers(0, 2, (_B, _S, 5), np.int32),
}


@pytest.mark.parametrize("mask", _KEY_MASKS)
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention(mask: str, bias: bool) -> None:  # noqa: FBT001
    inputs = [*_qkv(), _floats((3 * _D,), 4) if bias else None, _KEY_MASKS[mask]]
    _compare("MultiHeadAttention", inputs, {"num_heads": _N})


def test_multi_head_attention_of_another_value_size() -> None:
    inputs = [*_qkv(v_width=6), _floats((2 * _D + 6,), 4)]
    _compare("MultiHeadAttention", inputs, {"num_heads": _N, "scale": 0.2})


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_past(unidirectional: int) -> None:
    past = [_floats((_B, _N, 3, _H), seed) for seed in (5, 6)]
    added = _floats((1, _N, _S, _S + 3), 8)
    inputs = [*_qkv(keys=_S), None, None, added, *past]
    attributes = {"num_heads": _N, "unidirectional": unidirectional}
    _compare("MultiHeadAttention", inputs, attributes, outputs=3)


def test_multi_head_attention_of_split_heads() -> None:
    keys = [_floats((_B, _N, 5, _H), seed) for seed in (1, 2)]
    inputs = [_qkv()[0], *keys, None, _KEY_MASKS["keys"]]
    _compare("MultiHeadAttention", inputs, {"num_heads": _N})


def test_scores_of_multi_head_attention() -> None:
    q, k, v = _qkv()
    results = run_op("MultiHeadAttention", [q, k, v], {"num_heads": _N}, outputs=4, domain=_DOMAIN)
    assert q is not None
    split = q.reshape(_B, _S, _N, _H).transpose(0, 2, 1, 3)
    scores = split @ results[1].swapaxes(2, 3) / np.sqrt(_H)
    np.testing.assert_allclose(results[3], scores, rtol=1e-4, atol=1e-6)


def test_packed_operands() -> None:
    """onnxruntime packs on other devices only: the separate operands are the oracle."""
    q, k, v = (_floats((_B, _S, _N, _H), seed) for seed in range(3))
    flat = [x.reshape(_B, _S, _D) for x in (q, k, v)]
    (expected,) = run_op("MultiHeadAttention", flat, {"num_heads": _N}, domain=_DOMAIN)
    for inputs in ([np.stack([q, k, v], 3)], [flat[0], np.stack([k, v], 3)]):
        (y,) = run_op("MultiHeadAttention", inputs, {"num_heads": _N}, domain=_DOMAIN)
        np.testing.assert_allclose(y, expected, rtol=1e-5)


# -- RotaryEmbedding -------------------------------------------------------------------------------


def _tables(rows: int = 10, half: int = _H // 2) -> list[Array]:
    angles = _floats((rows, half), 9) * 3
    return [np.cos(angles), np.sin(angles)]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([3]), np.array([[0, 1, 2, 5], [4, 3, 9, 2]])])
@pytest.mark.parametrize("split", [False, True])
def test_rotary_embedding(interleaved: int, positions: Array, split: bool) -> None:  # noqa: FBT001
    x = _floats((_B, _N, _S, _H) if split else (_B, _S, _D))
    inputs: list[Array | None] = [x, positions.astype(np.int64), *_tables()]
    _compare("RotaryEmbedding", inputs, {"interleaved": interleaved})


def test_rotary_embedding_of_a_part() -> None:
    inputs: list[Array | None] = [_floats((_B, _S, _D)), np.array([0]), *_tables(half=2)]
    _compare("RotaryEmbedding", inputs, {"num_heads": _N, "rotary_embedding_dim": 4})


# -- GroupQueryAttention ---------------------------------------------------------------------------

_HEADS = {"num_heads": 4, "kv_num_heads": 2}


def _group_query(rows: int, past: int, total: int, lengths: list[int]) -> list[Array | None]:
    batch = len(lengths)
    caches = [_floats((batch, 2, past, 16), seed) if past else None for seed in (3, 4)]
    return [
        _floats((batch, rows, 64)),
        _floats((batch, rows, 32), 1),
        _floats((batch, rows, 32), 2),
        *caches,
        np.array(lengths, np.int32) - 1,
        np.array(total, np.int32),
    ]


def _compare_group_query(inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    """What lies beyond the keys of a sample, or comes of padding, is not specified."""
    options: dict[str, Any] = {"domain": _DOMAIN, "outputs": 3, "constants": (6,)}
    attributes = {**_HEADS, **attributes}
    model = one_node_model("GroupQueryAttention", inputs, attributes, **options)
    feeds = {f"x{k}": a for k, a in enumerate(inputs) if a is not None and k != 6}
    actual, expected = (
        [array.copy() for array in run(model, feeds)] for run in (run_model, run_onnxruntime)
    )
    for sample, last in enumerate(feeds["x5"]):
        for results in (actual, expected):
            for index in (1, 2):
                results[index][sample, :, last + 1 :] = 0
            if results[0].shape[1] > 1:
                results[0][sample, last + 1 :] = 0
    for result, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"causal": 0}, {"scale": 0.2}, {"softcap": 0.5}, {"local_window_size": 3},
     {"smooth_softmax": 1}, {"smooth_softmax": 1, "softcap": 0.5, "local_window_size": 3},
     {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}],
)  # fmt: skip
@pytest.mark.parametrize(
    ("rows", "past", "total", "lengths"),
    [
        pytest.param(5, 0, 5, [5, 5], id="prompt"),
        pytest.param(5, 0, 5, [5, 3], id="prompt-uneven"),
        pytest.param(1, 6, 7, [7, 7], id="next-token"),
        pytest.param(1, 6, 7, [7, 5], id="next-token-uneven"),
        pytest.param(1, 6, 7, [7], id="one-sample"),
        pytest.param(3, 9, 7, [7], id="room-to-spare"),
        pytest.param(1, 9, 7, [7, 4], id="room-to-spare-uneven"),
    ],
)
def test_group_query_attention(
    rows: int, past: int, total: int, lengths: list[int], attributes: dict[str, Any]
) -> None:
    inputs = _group_query(rows, past, total, lengths)
    if attributes.get("do_rotary"):
        inputs += _tables(half=8)
    _compare_group_query(inputs, attributes)


def test_group_query_attention_of_packed_operands() -> None:
    q, k, v, *rest = _group_query(5, 0, 5, [5, 5])
    assert q is not None and k is not None and v is not None  # noqa: PT018
    _compare_group_query([np.concatenate([q, k, v], -1), None, None, *rest], {})
