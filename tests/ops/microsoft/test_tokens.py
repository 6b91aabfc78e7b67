"""Hashes, repetitions, windows and other small operators of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import assert_matches_onnxruntime, run_op

_DOMAIN: Final = "com.microsoft"


def _integers(dtype: Any, *shape: int, most: int = 100, least: int = 0) -> Array:
    rng = np.random.default_rng([most, *shape])
    return rng.integers(least, most, shape).astype(dtype)


@pytest.mark.parametrize(
    "dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]
)
@pytest.mark.parametrize("seed", [0, 42, 2**31 + 7])
@pytest.mark.parametrize("positive", [0, 1])
def test_hashes(compare: Compare, positive: int, seed: int, dtype: Any) -> None:
    x = 12345 * floats(3, 5, dtype=np.float64)
    x = np.abs(x) if np.issubdtype(dtype, np.unsignedinteger) else x
    compare("MurmurHash3", [x.astype(dtype)], {"seed": seed, "positive": positive})


def test_hashes_of_bytes() -> None:
    with pytest.raises(ModelError, match="have no hash here"):
        run_op("MurmurHash3", [_integers(np.uint8, 3)], domain=_DOMAIN)


@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_repetitions(length: int, size: int) -> None:
    operands = [_integers(np.int64, 2, length, most=3), floats(2, 5)]
    assert_matches_onnxruntime(
        "NGramRepeatBlock", operands, {"ngram_size": size}, domain=_DOMAIN, rtol=0, atol=0
    )


def test_repetitions_of_nothing() -> None:
    with pytest.raises(ModelError, match="n-grams of 0 tokens"):
        run_op(
            "NGramRepeatBlock",
            [_integers(np.int64, 2, 3), floats(2, 5)],
            {"ngram_size": 0},
            domain=_DOMAIN,
        )


def test_distinct_values(compare: Compare) -> None:
    compare("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], outputs=3)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("step", [1, 2])
def test_windows(compare: Compare, axis: int, step: int, dtype: Any) -> None:
    x = (9 * floats(4, 6, 5)).astype(dtype)
    compare("UnfoldTensor", [x], {"dim": axis, "size": 3, "step": step})


def test_windows_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match="windows of 7 in steps of 1 do not fit 5 elements"):
        run_op("UnfoldTensor", [floats(4, 5)], {"size": 7}, domain=_DOMAIN)


def test_products_of_words(compare: Compare) -> None:
    a, b = (_integers(np.int16, *shape, least=-200, most=200) for shape in ((2, 3, 4), (4, 5)))
    compare("MatMulInteger16", [a, b])


@pytest.mark.parametrize("bias", [False, True])
def test_padding_that_is_an_operand(compare: Compare, bias: bool) -> None:  # noqa: FBT001
    pads = np.array([1, 0, 1, 2])
    operands = [floats(1, 2, 5, 5), floats(2, 3, 3, 3), pads, floats(3) if bias else None]
    attributes = {"strides": [2, 2], "output_padding": [1, 1]}
    compare("ConvTransposeWithDynamicPads", operands, attributes, constants=(2,))
