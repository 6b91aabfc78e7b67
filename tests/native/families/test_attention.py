"""Attention: the native kernel against that in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library
from tests.native.bindings import native_results, numpy_results, steady_results

_SIZES = st.sampled_from([1, 2, 3, 7, 10, 16, 17, 31, 32, 33, 50])


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _compare(
    library: Library,
    inputs: Sequence[Array | None],
    attributes: dict[str, Any],
    *,
    rtol: float = 1e-4,
    atol: float = 2e-5,
) -> list[Array]:
    """Both engines agree, and one thread and two bit for bit; the native results."""
    q, k, v = inputs[:3]
    assert q is not None and k is not None and v is not None  # noqa: PT018
    batch, heads, rows, _ = q.shape
    shape: tuple[int, ...] = (batch, heads, rows, v.shape[3])
    if attributes.get("heads_last"):
        shape = (batch, rows, heads, v.shape[3])
    outputs = [np.empty(shape, np.float32)]
    if attributes.get("scores", -1) >= 0:
        outputs.append(np.empty((batch, heads, rows, k.shape[2]), np.float32))
    expected = numpy_results("Attention", inputs, outputs, attributes)
    found = steady_results(library, "Attention", inputs, outputs, attributes)
    for wanted, got in zip(expected, found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
    return found


def _mask(kind: str, shape: tuple[int, ...]) -> Array | None:
    if kind == "bool":
        return _numbers(*shape, seed=3) > -0.5
    if kind == "float":
        mask = _numbers(*shape, seed=3)
        mask[mask < -1] = -np.inf
        return mask
    return None


def _sinks(kind: str, heads: int) -> Array | None:
    if kind == "none":
        return None
    sinks = 3 * _numbers(2 * heads, seed=4)
    sinks[::3] = -np.inf  # as if there was none
    return sinks[::2] if kind == "spread" else sinks[:heads]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    rows=_SIZES,
    keys=_SIZES,
    depth=_SIZES,
    width=_SIZES,
    kind=st.sampled_from(["none", "bool", "float"]),
    broadcast=st.lists(st.booleans(), min_size=4, max_size=4),
    attributes=st.fixed_dictionaries(
        {
            "causal": st.integers(0, 1),
            "heads_last": st.integers(0, 1),
            "softcap": st.sampled_from([0.0, 2.0]),
            "scores": st.integers(-1, 3),
            "left_window": st.integers(-1, 5),
            "right_window": st.integers(-1, 5),
            "offset": st.integers(-3, 9),
        }
    ),
    lengths=st.booleans(),
    turned=st.booleans(),
    sinks=st.sampled_from(["none", "some", "spread"]),
)
def test_all_forms(
    library: Library,
    *,
    batch: int,
    kv_heads: int,
    group: int,
    rows: int,
    keys: int,
    depth: int,
    width: int,
    kind: str,
    broadcast: list[bool],
    attributes: dict[str, Any],
    lengths: bool,
    turned: bool,
    sinks: str,
) -> None:
    heads = kv_heads * group
    q = np.moveaxis(_numbers(batch, rows, heads, depth), 2, 1)
    k = _numbers(batch, kv_heads, keys, depth, seed=1)
    v = _numbers(batch, kv_heads, keys, width, seed=2)
    if turned:
        k = np.moveaxis(_numbers(batch, kv_heads, depth, keys, seed=1), 2, 3)
        v = np.moveaxis(_numbers(batch, keys, kv_heads, width, seed=2), 2, 1)
    whole = (batch, heads, rows, keys)
    sizes = [1 if flat else n for flat, n in zip(broadcast, whole, strict=True)]
    ends = None
    if lengths:
        ends = np.random.default_rng(5).integers(0, keys + 1, batch)
    inputs = [q, k, v, _mask(kind, tuple(sizes)), ends, _sinks(sinks, heads)]
    _compare(library, inputs, {"scale": depth**-0.5, **attributes})


@pytest.mark.parametrize("keys", [255, 256, 257, 600, 1025])
@pytest.mark.parametrize("rows", [1, 70, 300])
@pytest.mark.parametrize("causal", [0, 1])
def test_many_keys(library: Library, keys: int, rows: int, causal: int) -> None:
    """More keys than are shown at once: sums are scaled whenever a larger score appears."""
    q = _numbers(1, 2, rows, 24)
    k = _numbers(1, 1, keys, 24, seed=1) * np.linspace(0, 9, keys, dtype=np.float32)[:, None]
    v = _numbers(1, 1, keys, 40, seed=2)
    attributes = {"scale": 1.0, "causal": causal, "offset": keys - rows}
    _compare(library, [q, k, v], attributes, rtol=2e-4, atol=1e-4)
    _compare(library, [q, -k, v], {**attributes, "heads_last": 1}, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("sink", [-100.0, 0.0, 100.0])
def test_sinks_of_many_keys(library: Library, sink: float) -> None:
    q, v = _numbers(1, 2, 3, 24), _numbers(1, 1, 600, 40, seed=2)
    k = _numbers(1, 1, 600, 24, seed=1) * np.linspace(0, 9, 600, dtype=np.float32)[:, None]
    sinks = np.array([sink, 1.0], np.float32)
    _compare(library, [q, k, v, None, None, sinks], {"scale": 1.0}, rtol=2e-4, atol=1e-4)


def test_deep_heads(library: Library) -> None:
    """More products to add up than a tile does at once, in both products."""
    q, k = _numbers(1, 1, 5, 700), _numbers(1, 1, 600, 700, seed=1)
    v = _numbers(1, 1, 600, 3, seed=2)
    _compare(library, [q, k, v], {"scale": 0.04, "scores": 3})


@pytest.mark.parametrize("group", [1, 3, 4])
@pytest.mark.parametrize("width", [3, 16, 64, 100])
def test_steps_of_decoding(library: Library, group: int, width: int) -> None:
    """So few queries for a key head that keys and values are not packed."""
    q, k = _numbers(2, 2 * group, 1, 37), _numbers(2, 2, 700, 37, seed=1)
    v = np.moveaxis(_numbers(2, 700, 2, width, seed=2), 2, 1)
    for lengths in (np.array([700, 301]), np.broadcast_to(np.int64(301), 2)):
        _compare(library, [q, k, v, None, lengths], {"scale": 0.2, "causal": 1})
    _compare(library, [q, k, v], {"scale": 0.2, "softcap": 3.0, "scores": 3})


@pytest.mark.parametrize("scores", [-1, 3])
def test_queries_that_see_nothing_give_zero(library: Library, scores: int) -> None:
    mask = np.ones((1, 1, 20, 9), np.bool_)
    mask[..., 3, :] = False
    mask[..., 19, :] = False
    inputs = [_numbers(1, 2, 20, 8), _numbers(1, 2, 9, 8), _numbers(1, 2, 9, 8), mask]
    for item in _compare(library, inputs, {"scale": 1.0, "scores": scores}):
        assert not item[:, :, [3, 19]].any()
        assert item[:, :, 4].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_scores_stay_with_their_query(library: Library, value: float) -> None:
    q = _numbers(1, 2, 20, 8)
    q[0, 1, 5, 2] = value
    inputs: list[Array | None] = [q, _numbers(1, 2, 300, 8), _numbers(1, 2, 300, 8)]
    (out,) = _compare(library, inputs, {"scale": 1.0})
    assert np.isnan(out[0, 1, 5]).all()
    assert np.isnan(out).sum() == out.shape[-1]


def test_unaligned_operands(library: Library) -> None:
    """Rows that begin anywhere, with gaps between them."""
    q, k, v = (_numbers(1, 3, 21, 15, seed=seed)[..., 1:14] for seed in range(3))
    _compare(library, [q, k, v], {"scale": 0.3})


def test_other_types_are_not_encoded(library: Library) -> None:
    x: Array = np.ones((1, 1, 2, 3), np.float64)
    assert native_results(library, "Attention", [x, x, x], [x], {"scale": 1.0}) is None


def test_nothing_to_compute_is_not_encoded(library: Library) -> None:
    q, k = np.ones((1, 1, 2, 3), np.float32), np.ones((1, 1, 0, 3), np.float32)
    assert native_results(library, "Attention", [q, k, k], [q], {"scale": 1.0}) is None


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
@pytest.mark.parametrize("stage", [-1, 0, 3])
def test_halves(library: Library, kind: str, stage: int) -> None:
    """Computed in float32 and rounded once: to one unit in the last place."""
    q, k, v = (_numbers(2, 3, 9, 16, seed=i).astype(np.float16) for i in range(3))
    mask = _mask(kind, (1, 3, 9, 9))
    if mask is not None and kind == "float":
        mask = mask.astype(np.float16)
    outputs = [np.empty((2, 3, 9, 16), np.float16)]
    if stage >= 0:
        outputs.append(np.empty((2, 3, 9, 9), np.float16))
    attributes = {"scale": 0.25, "causal": 1, "scores": stage}
    expected = numpy_results("Attention", [q, k, v, mask], outputs, attributes)
    got = native_results(library, "Attention", [q, k, v, mask], outputs, attributes)
    assert got is not None
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-9, atol=2**-11)


@pytest.mark.parametrize(("heads", "rows"), [(1, 500), (3, 420), (7, 130)])
def test_few_heads_of_many_rows(library: Library, heads: int, rows: int) -> None:
    """Chunks of two panels of queries up to eight, and what they leave over."""
    q, k, v = (_numbers(1, heads, n, 16, seed=n) for n in (rows, 290, 290))
    _compare(library, [q, k, v], {"scale": 0.25})
