"""TfIdfVectorizer against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from tests.support.oracles import assert_matches_onnxruntime, run_op

_RNG = np.random.default_rng(5)
# 1-grams 2 3 5 4, 2-grams (5 6) (7 8) (6 7), one 3-gram (2 2 2)
_POOL: dict[str, Any] = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 2, 2],
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6, 7],
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 0,
}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize("lengths", [(1, 3), (2, 2), (1, 1), (3, 3)])
def test_modes(mode: str, skip: int, lengths: tuple[int, int]) -> None:
    attributes = _POOL | {
        "mode": mode,
        "max_skip_count": skip,
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[1],
    }
    for dtype in (np.int32, np.int64):
        x = _RNG.integers(2, 9, (3, 40)).astype(dtype)
        assert_matches_onnxruntime("TfIdfVectorizer", [x], attributes)
        assert_matches_onnxruntime("TfIdfVectorizer", [x[0]], attributes)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_weights_and_order_of_columns(mode: str) -> None:
    attributes = _POOL | {
        "mode": mode,
        "weights": [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
        "ngram_indexes": [3, 1, 0, 2, 7, 6, 5, 4],
    }
    x = _RNG.integers(0, 9, (2, 30))
    assert_matches_onnxruntime("TfIdfVectorizer", [x], attributes)


def test_fewer_tokens_than_an_n_gram() -> None:
    x = np.array([[5, 6]])
    assert_matches_onnxruntime("TfIdfVectorizer", [x], _POOL)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ngram_counts": [0, 3, 10]}, "do not divide"),
        ({"ngram_indexes": [0, 1]}, "has 8 n-grams, but 2"),
        ({"mode": "BM25"}, "'mode' is 'BM25'"),
        ({"weights": [1.0]}, "one weight for each of 8 n-grams"),
    ],
)
def test_ngrams_and_modes_that_do_not_fit_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("TfIdfVectorizer", [np.array([1, 2])], _POOL | changed)


def test_strings_are_refused() -> None:
    attributes = {name: value for name, value in _POOL.items() if name != "pool_int64s"}
    with pytest.raises(ModelError, match="strings"):
        run_op("TfIdfVectorizer", [np.array([1])], attributes | {"pool_strings": ["a"]})
