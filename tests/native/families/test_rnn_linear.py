"""Linear attention, judged by the definition in double precision, number by number."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, find_library
from tests.native.bindings import native_results

_VALUES: Final = (1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130)


def _operands(seed: int, sizes: tuple[int, ...], *, decays: int, beta: bool) -> list[Array | None]:
    """Of T tokens, B samples, N heads, queries, K, V; keys are short, so that states stay small."""
    tokens, batch, heads, queries, keys, values = sizes
    random = np.random.default_rng(seed)

    def floats(*shape: int) -> Array:
        return random.uniform(-1, 1, shape).astype(np.float32)

    outer = tokens, batch, heads
    return [
        floats(batch, heads, keys, values),
        floats(*outer, queries, keys),
        floats(*outer, 1, keys) / np.float32(np.sqrt(keys)),
        floats(*outer, 1, values),
        np.abs(floats(*outer, decays, 1)) if decays else None,
        np.abs(floats(*outer, 1, 1)) if beta else None,
    ]


def _definition(operands: list[Array | None]) -> list[Array]:
    wide = [None if each is None else each.astype(np.float64) for each in operands]
    first, q, k, v, decay, beta = wide
    assert first is not None
    assert q is not None
    assert k is not None
    assert v is not None
    state, answers = first.copy(), []
    for t in range(len(q)):
        if decay is not None:
            state *= decay[t]
        news = v[t]
        if beta is not None:
            news = beta[t] * (v[t] - np.einsum("bnij,bnjv->bniv", k[t], state))
        state += np.einsum("bnik,bniv->bnkv", k[t], news)
        answers.append(np.einsum("bnik,bnkv->bniv", q[t], state))
    return [np.stack(answers), state]


def _check(library: Library, operands: list[Array | None], **laid: Any) -> None:
    expected = _definition(operands)
    outputs = [each.astype(np.float32) for each in expected]
    found = [
        native_results(library, "LinearAttention", operands, outputs, {}, threads=threads, **laid)
        for threads in (1, 2, 3, 8, 16)
    ]
    assert found[0] is not None
    for got, wanted in zip(found[0], expected, strict=True):
        # Rounding of a token is forgotten, or carried on, by factors of at most one.
        tokens, keys = expected[0].shape[0], expected[1].shape[2]
        bound = 8 * (tokens + 1) * (keys + 8) * 2.0**-24 * max(1, np.abs(expected[1]).max())
        np.testing.assert_allclose(got, wanted, rtol=0, atol=bound * np.sqrt(keys))
    for others in found[1:]:
        assert others is not None
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], others, strict=True))


@given(
    sizes=st.tuples(
        st.integers(1, 9),
        st.integers(1, 2),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 40),
        st.sampled_from(_VALUES),
    ),
    each=st.sampled_from(("none", "head", "key")),
    beta=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
@settings(max_examples=60, deadline=None)
def test_all_sizes(sizes: tuple[int, ...], each: str, seed: int, *, beta: bool) -> None:
    library = find_library()
    if library is None:
        pytest.skip("no native kernels")
    decays = {"none": 0, "head": 1, "key": sizes[4]}[each]
    _check(library, _operands(seed, sizes, decays=decays, beta=beta))


def test_strided_operands(library: Library) -> None:
    operands = _operands(0, (4, 2, 3, 2, 12, 20), decays=1, beta=True)
    for index, operand in enumerate(operands):
        if operand is None:
            continue
        wide = np.zeros((*operand.shape[:-1], 2 * operand.shape[-1]), np.float32)
        wide[..., ::2] = operand
        _check(library, [*operands[:index], wide[..., ::2], *operands[index + 1 :]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_with_its_head_and_column(library: Library, value: float) -> None:
    operands = _operands(1, (3, 1, 2, 1, 8, 20), decays=1, beta=True)
    state = operands[0]
    assert state is not None
    state[0, 1, 2, 17] = value
    outputs = [np.empty((3, 1, 2, 1, 20), np.float32), np.empty_like(state)]
    found = native_results(library, "LinearAttention", operands, outputs, {})
    assert found is not None
    finite = np.isfinite(found[1])
    assert finite[0, 0].all()
    assert finite[0, 1, :, np.arange(20) != 17].all()
    assert not finite[0, 1, 2, 17]
