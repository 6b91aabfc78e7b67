"""Vectorisers of token sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel

__all__ = ["KERNELS"]


@dataclass(frozen=True, slots=True)
class _Grams:
    """The n-grams of one length in the pool.

    They are matched token by token: ``levels[i]`` holds the sorted distinct (prefix, token) pairs
    of the first i + 1 tokens, and the rank of a pair is the prefix of the next level.
    ``columns[rank]`` is the output column of the n-gram whose last pair has that rank.
    """

    tokens: Array  # sorted distinct tokens
    levels: tuple[Array, ...]
    columns: Array

    def column_of(self, windows: Array) -> Array:
        """The output column of each window (last axis: its tokens), -1 where it is no n-gram."""
        prefix = np.zeros(windows.shape[:-1], np.int64)
        found = np.ones(windows.shape[:-1], bool)
        for position, level in enumerate(self.levels):
            token, known = _ranks(self.tokens, windows[..., position])
            prefix, match = _ranks(level, prefix * len(self.tokens) + token)
            found &= known & match
        return np.where(found, self.columns[prefix], -1)


def _ranks(table: Array, values: Array) -> tuple[Array, Array]:
    """Positions of ``values`` in the sorted ``table``, and whether they are there at all."""
    ranks = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return ranks, table[ranks] == values


def _build_grams(pool: Array, columns: Array) -> _Grams:
    """``pool`` is [grams, n]."""
    tokens = np.unique(pool)
    prefix = np.zeros(len(pool), np.int64)
    levels: list[Array] = []
    for position in range(pool.shape[1]):
        pairs = prefix * len(tokens) + np.searchsorted(tokens, pool[:, position])
        level, prefix = np.unique(pairs, return_inverse=True)
        levels.append(level)
    by_rank = np.zeros(len(levels[-1]), np.int64)
    by_rank[prefix] = columns
    return _Grams(tokens, tuple(levels), by_rank)


def _pools(binding: Binding) -> Iterator[tuple[int, _Grams]]:
    """The n-grams by length; the pool lists all 1-grams, then all 2-grams, and so on."""
    pool = np.asarray(binding.integers("pool"), np.int64)
    starts = (*binding.integers("ngram_counts"), len(pool))
    columns = np.asarray(binding.integers("ngram_indexes"), np.int64)
    done = 0
    for length, (begin, end) in enumerate(pairwise(starts), start=1):
        count = (end - begin) // length
        if count:
            grams = pool[begin : begin + count * length].reshape(count, length)
            yield length, _build_grams(grams, columns[done : done + count])
        done += count


def _tf_idf(binding: Binding) -> Calls:
    """ONNX TfIdfVectorizer-9: counts of the pool's n-grams, tokens up to ``max_skip`` apart.

    ``mode`` TF gives the counts, IDF the weights of the n-grams present, TFIDF their product.
    """
    x, out = binding.input(0), binding.output()
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    counts = out.reshape(len(rows), -1)
    low, high = binding.integer("min_gram_length"), binding.integer("max_gram_length")
    pools = [(length, grams) for length, grams in _pools(binding) if low <= length <= high]
    searches = [
        (_window_index(rows.shape[1], length, skip + 1), grams)
        for length, grams in pools
        for skip in range(1 if length == 1 else binding.integer("max_skip_count") + 1)
    ]
    weights = np.ones(counts.shape[1], np.float32)
    if given := binding.numbers("weights", ()):
        weights[list(binding.integers("ngram_indexes"))] = given
    weigh = _WEIGHINGS[binding.text("mode")]
    row_numbers = np.arange(len(rows))[:, None]

    def call() -> None:
        counts.fill(0)
        for index, grams in searches:
            columns = grams.column_of(rows[:, index])
            hit = columns >= 0
            where = np.broadcast_to(row_numbers, columns.shape)[hit], columns[hit]
            np.add.at(counts, where, np.float32(1))
        weigh(counts, weights)

    return call


def _window_index(tokens: int, length: int, stride: int) -> Array:
    """[windows, length]: the positions of the tokens of every n-gram candidate."""
    windows = max(tokens - (length - 1) * stride, 0)
    return np.arange(windows)[:, None] + np.arange(length)[None, :] * stride


def _tf(counts: Array, weights: Array) -> None:
    del counts, weights


def _idf(counts: Array, weights: Array) -> None:
    np.minimum(counts, 1, out=counts)
    _tfidf(counts, weights)


def _tfidf(counts: Array, weights: Array) -> None:
    np.multiply(counts, weights, out=counts)


_WEIGHINGS: Final = {"TF": _tf, "IDF": _idf, "TFIDF": _tfidf}

KERNELS: Final[dict[str, Kernel]] = {"TfIdfVectorizer": _tf_idf}
