"""Attention and rotary embedding, against numpy written from ONNX's text, and onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.autodiff import differentiate
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import (
    assert_matches_onnxruntime,
    epsilon,
    import_graph,
    one_node_model,
    run_ir,
    run_onnxruntime,
    run_op,
)

_CONSTANT = pytest.mark.parametrize("constant", [False, True])


def _values(*shape: int, dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def _qkv(
    batch: int = 2,
    heads: int = 4,
    kv_heads: int = 4,
    rows: int = 5,
    keys: int = 7,
    depth: int = 6,
    dtype: npt.DTypeLike = np.float32,
) -> tuple[Array, Array, Array]:
    return (
        _values(batch, heads, rows, depth, dtype=dtype),
        _values(batch, kv_heads, keys, depth, seed=1, dtype=dtype),
        _values(batch, kv_heads, keys, depth - 2, seed=2, dtype=dtype),
    )


def _reference(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    lengths: Array | None = None,
    **attributes: Any,
) -> tuple[Array, dict[int, Array]]:
    """The result and the scores at each stage, in float64."""
    q, k, v = (item.astype(np.float64) for item in (q, k, v))
    k, v = (np.repeat(item, q.shape[1] // item.shape[1], axis=1) for item in (k, v))
    scores = attributes["scale"] * q @ k.swapaxes(2, 3)
    stages = {0: scores}
    if cap := attributes.get("softcap", 0.0):
        scores = cap * np.tanh(scores / cap)
    stages[1] = scores
    hidden = np.zeros(scores.shape, np.bool_)
    rows, keys = scores.shape[2:]
    for batch in range(len(q)):
        offset = attributes.get("offset", 0)
        if lengths is not None:
            offset = int(lengths[batch]) - rows
            hidden[batch, :, :, int(lengths[batch]) :] = True
        for row in range(rows):
            position = row + offset
            for key in range(keys):
                hidden[batch, :, row, key] |= (
                    (bool(attributes.get("causal")) and key > position)
                    or (0 <= attributes.get("left_window", -1) < position - key)
                    or (0 <= attributes.get("right_window", -1) < key - position)
                )
    if mask is not None and mask.dtype == np.bool_:
        hidden |= ~mask
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    scores = np.where(hidden, -np.inf, scores)
    stages[2] = scores
    peaks = scores.max(-1, keepdims=True, initial=-1e300)
    powers = np.exp(scores - peaks) * (scores > -np.inf)
    stages[3] = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    return stages[3] @ v, stages


_ATTRIBUTES: list[dict[str, Any]] = [
    {},
    {"softcap": 1.5},
    {"causal": 1},
    {"causal": 1, "offset": 2},
    {"causal": 1, "offset": -2},
    {"left_window": 1, "right_window": 2},
    {"left_window": 0},
    {"right_window": 0, "causal": 1, "softcap": 0.5},
]


@pytest.mark.parametrize("attributes", _ATTRIBUTES)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("stage", [-1, 0, 1, 2, 3])
def test_positions_and_stages(attributes: dict[str, Any], kv_heads: int, stage: int) -> None:
    attributes = {"scale": 0.4, **attributes}
    operands = _qkv(kv_heads=kv_heads)
    y, stages = _reference(*operands, **attributes)
    actual = run_ir("Attention", operands, {**attributes, "scores": stage})
    np.testing.assert_allclose(actual[0], y, rtol=1e-5, atol=2e-6)
    if stage >= 0:
        np.testing.assert_allclose(actual[1], stages[stage], rtol=1e-5, atol=2e-6)


@_CONSTANT
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("shape", [(5, 7), (7,), (1, 7), (4, 1, 7), (2, 1, 5, 7), (5, 1), (1,)])
@pytest.mark.parametrize("kind", [np.bool_, np.float32])
def test_masks(kind: npt.DTypeLike, shape: tuple[int, ...], causal: int, *, constant: bool) -> None:
    operands = _qkv()
    visible = _values(*shape) > -0.7
    floats = np.where(visible, _values(*shape, seed=1), np.float32(-np.inf))
    mask = visible if kind is np.bool_ else floats
    y, _ = _reference(*operands, mask, scale=0.5, causal=causal)
    (actual,) = run_op(
        "Attention",
        [*operands, mask],
        {"scale": 0.5, "is_causal": causal},
        opset=23,
        constants=(3,) if constant else (),
    )
    np.testing.assert_allclose(actual, y, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("attributes", _ATTRIBUTES)
@pytest.mark.parametrize("kind", [None, np.bool_, np.float32])
def test_lengths(attributes: dict[str, Any], kind: npt.DTypeLike) -> None:
    attributes = {"scale": 0.5, **attributes, "offset": 0}
    operands = _qkv(batch=3)
    lengths = np.array([3, 7, 5])
    mask = None
    if kind is not None:
        mask = (_values(5, 7) > -1) if kind is np.bool_ else _values(5, 7)
    y, _ = _reference(*operands, mask, lengths, **attributes)
    (actual,) = run_ir("Attention", [*operands, mask, lengths], attributes)
    np.testing.assert_allclose(actual, y, rtol=1e-5, atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_blocks_and_strides(data: st.DataObject) -> None:
    """Sizes that are cut by batches, by heads and by rows, on operands of any layout."""
    draw = data.draw
    kv_heads = draw(st.integers(1, 4))
    heads = kv_heads * draw(st.integers(1, 3))
    rows, keys = draw(st.sampled_from([(1, 9), (3, 700), (90, 200), (270, 260)]))
    batch = draw(st.integers(1, 3))
    operands = []
    for x in _qkv(batch, heads, kv_heads, rows, keys):
        order = draw(st.permutations(range(4)))
        operands.append(np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)))
    attributes: dict[str, Attribute] = {
        "scale": 0.3,
        "causal": draw(st.integers(0, 1)),
        "heads_last": draw(st.integers(0, 1)),
        "scores": draw(st.sampled_from([-1, 3])),
    }
    mask = _values(rows, keys, seed=4) if draw(st.booleans()) else None
    q, k, v = (item.astype(np.float64) for item in operands)
    k, v = (np.repeat(item, heads // kv_heads, axis=1) for item in (k, v))
    scores = 0.3 * q @ k.swapaxes(2, 3) + (0 if mask is None else mask)
    if attributes["causal"]:
        scores = np.where(np.tri(rows, keys, dtype=np.bool_), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    y = powers / powers.sum(-1, keepdims=True) @ v
    (actual, *_) = run_ir("Attention", [*operands, mask], attributes)
    expected = y.swapaxes(1, 2) if attributes["heads_last"] else y
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2), (np.float64, 1e-12)]
)
def test_dtypes(dtype: Any, rtol: float) -> None:
    operands = _qkv(kv_heads=2, dtype=dtype)
    mask = _values(5, 7).astype(dtype)
    y, _ = _reference(*operands, mask, scale=0.5)
    (actual,) = run_op("Attention", [*operands, mask], {"scale": 0.5}, opset=23)
    np.testing.assert_allclose(actual.astype(np.float64), y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_query_that_sees_nothing_gives_zero(poison: float) -> None:
    q, k, v = _qkv()
    q[0, 0, 2, 0] = poison
    mask = np.ones((5, 7), np.bool_)
    mask[2] = False
    actual = run_ir("Attention", [q, k, v, mask], {"scale": 0.5, "scores": 3})
    assert not actual[0][:, :, 2].any()
    assert not actual[1][:, :, 2].any()
    assert np.isfinite(actual[0]).all()


def test_scores_far_apart_between_rows() -> None:
    q, k, v = _qkv(heads=1, kv_heads=1, rows=40)
    q *= np.linspace(1, 90, 40, dtype=np.float32)[:, None]
    y, _ = _reference(q, k, v, scale=1.0)
    (actual,) = run_ir("Attention", [q, k, v], {"scale": 1.0})
    np.testing.assert_allclose(actual, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("flat", [False, True])
def test_cache_and_three_dimensions(past: int, *, flat: bool) -> None:
    q, k, v = _qkv(heads=4, kv_heads=2, keys=5)
    cache = [_values(2, 2, past, 6, seed=5), _values(2, 2, past, 4, seed=6)] if past else []
    all_k, all_v = (
        (np.concatenate([old, new], 2) for old, new in zip(cache, (k, v), strict=True))
        if past
        else (k, v)
    )
    y, stages = _reference(q, all_k, all_v, scale=6**-0.5, causal=1, offset=past)
    attributes: dict[str, Any] = {"is_causal": 1, "qk_matmul_output_mode": 2}
    inputs: list[Array | None] = [q, k, v]
    if flat:
        inputs = [x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for x in (q, k, v)]
        attributes |= {"q_num_heads": 4, "kv_num_heads": 2}
        y = y.swapaxes(1, 2).reshape(2, 5, -1)
    actual = run_op("Attention", [*inputs, None, *cache], attributes, opset=24, outputs=4)
    for result, expected in zip(actual, (y, all_k, all_v, stages[2]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
def test_short_masks_hide_the_rest(kind: npt.DTypeLike) -> None:
    operands = _qkv()
    mask = np.ones((5, 4), kind)
    (actual,) = run_op("Attention", [*operands, mask], {"scale": 0.5}, opset=24)
    q, k, v = operands
    expected, _ = _reference(q, k[:, :, :4], v[:, :, :4], scale=0.5)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kind", [np.bool_, np.float64])
@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_composed_masks_of_doubles(kind: npt.DTypeLike, softcap: float) -> None:
    """A mask, causality and lengths at once, as onnxruntime's kernel of float32 composes them.

    Of float64 it has no kernel: an older function body stands in, whose causality knows no lengths.
    """
    operands = _qkv(kv_heads=2, rows=3, keys=7, dtype=np.float64)
    mask = _values(2, 1, 3, 7) > -1 if kind is np.bool_ else _values(2, 1, 3, 7, dtype=kind)
    mask[..., 0] = kind is np.bool_
    inputs: list[Array | None] = [*operands, mask, None, None, np.array([5, 7])]
    attributes: dict[str, Any] = {"is_causal": 1, "softcap": softcap, "qk_matmul_output_mode": 3}
    actual = run_op("Attention", inputs, attributes, opset=24, outputs=4)
    narrow = [
        x.astype(np.float32) if x is not None and x.dtype == np.float64 else x for x in inputs
    ]
    model = one_node_model("Attention", narrow, attributes, opset=24, outputs=4)
    feeds = {f"x{i}": x for i, x in enumerate(narrow) if x is not None}
    for result, expected in zip(actual, run_onnxruntime(model, feeds), strict=True):
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4)], "q must have 4 dimensions"),
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)], "do not fit together"),
        ([(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], "3 query heads cannot share 2"),
        ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (2, 3)], "broadcast"),
    ],
)
def test_heads_and_masks_that_do_not_fit_are_refused(
    shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_ir("Attention", [np.ones(shape, np.float32) for shape in shapes], {"scale": 1.0})


def test_no_rows_and_no_keys() -> None:
    assert run_ir("Attention", _qkv(rows=0), {"scale": 1.0})[0].shape == (2, 4, 0, 4)
    (actual,) = run_ir("Attention", _qkv(keys=0), {"scale": 1.0})
    np.testing.assert_array_equal(actual, np.zeros((2, 4, 5, 4)))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_rotary_embedding(interleaved: int, rotated: int, *, flat: bool, positions: bool) -> None:
    x = _values(2, 5, 24) if flat else _values(2, 3, 5, 8)
    half = (rotated or 8) // 2
    table = (9, half) if positions else (2, 5, half)
    inputs: list[Array] = [x, _values(*table, seed=1), _values(*table, seed=2)]
    if positions:
        inputs.append(np.array([[0, 1, 8, 3, 4], [4, 3, 2, 2, 0]]))
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": rotated}
    if flat:
        attributes["num_heads"] = 3
    if rotated and not flat:
        attributes["num_heads"] = 3  # onnxruntime wants it for a partial rotation
    assert_matches_onnxruntime("RotaryEmbedding", inputs, attributes, opset=23)


def test_rotary_embedding_in_half_precision() -> None:
    inputs = [_values(2, 3, 5, 8), _values(2, 5, 4, seed=1), _values(2, 5, 4, seed=2)]
    (expected,) = run_op("RotaryEmbedding", inputs, opset=23)
    half = [x.astype(np.float16) for x in inputs]
    (actual,) = run_op("RotaryEmbedding", half, opset=23)
    np.testing.assert_allclose(actual, expected, rtol=3e-3, atol=3e-3)


# -- gradient --------------------------------------------------------------------------------------


def _gradient_operands(dtype: npt.DTypeLike, **shape: int) -> list[Array | None]:
    q, k, v = _qkv(dtype=dtype, **shape)
    given = _values(*q.shape[:3], v.shape[3], seed=4, dtype=dtype)
    result = run_ir("Attention", [q, k, v], {"scale": 0.4, "causal": 1})[0]
    return [q, k, v, None, None, given, result]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "shape", [{"kv_heads": 2}, {"rows": 300, "keys": 300}, {"rows": 90, "keys": 700, "kv_heads": 1}]
)
def test_gradient_in_element_types(dtype: npt.DTypeLike, shape: dict[str, int]) -> None:
    """Of shapes in one block, several heads per block, and several blocks per head."""
    operands = _gradient_operands(dtype, **shape)
    exact = [None if item is None else item.astype(np.float64) for item in operands]
    attributes: dict[str, Attribute] = {"scale": 0.4, "causal": 1}
    expected = run_ir("AttentionGrad", exact, attributes)
    step = epsilon(dtype)
    for found, wanted in zip(run_ir("AttentionGrad", operands, attributes), expected, strict=True):
        assert found.dtype == dtype
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=4 * step, atol=8 * step * scale)


def test_gradient_of_a_narrow_mask() -> None:
    """It is a sum over all samples and heads."""
    operands = _gradient_operands(np.float16, batch=8, heads=8, kv_heads=8, rows=40, keys=50)
    operands[3] = _values(40, 50, dtype=np.float16, seed=7)
    exact = [None if item is None else item.astype(np.float64) for item in operands]
    attributes: dict[str, Attribute] = {"scale": 0.4, "causal": 1, "mask_grad": 1}
    found, wanted = (run_ir("AttentionGrad", given, attributes)[3] for given in (operands, exact))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max())


def test_gradient_is_the_same_with_threads() -> None:
    operands = _gradient_operands(np.float32, batch=4, heads=8, kv_heads=8, rows=256, keys=256)
    alone, shared = (_gradient_on(operands, threads) for threads in (1, 3))
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)


def _gradient_on(operands: list[Array | None], threads: int) -> list[Array]:
    outputs = [np.empty_like(item) for item in operands[:3] if item is not None]
    binding = Binding(
        inputs=tuple(operands),
        outputs=tuple(outputs),
        input_dtypes=(None,) * len(operands),
        output_dtypes=(None,) * len(outputs),
        attributes={"scale": 0.4, "causal": 1},
        constant=(False,) * len(operands),
        scratch=Scratch(threads),
        random=RandomState(),
    )
    for call in prepare(KERNELS["AttentionGrad"], binding):
        call()
    return outputs


def test_gradient_without_keys() -> None:
    operands = _gradient_operands(np.float32, keys=0)
    for gradient in run_ir("AttentionGrad", operands, {"scale": 0.4, "causal": 1}):
        assert not gradient.any()


def test_the_scores_have_no_gradient() -> None:
    inputs = list(_qkv(dtype=np.float64))
    model = one_node_model("Attention", inputs, opset=23, outputs=4)
    graph = import_graph(model)
    seed = graph.add_constant("seed", graph.outputs[3].type, np.ones((2, 4, 5, 7)))
    with pytest.raises(ModelError, match="the scores that Attention returns have no gradient"):
        differentiate(graph, {graph.outputs[3]: seed}, [graph.tensors["x0"]])
