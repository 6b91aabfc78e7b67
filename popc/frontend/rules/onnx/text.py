"""Vectorisers of token sequences."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _tf_idf(node: Node) -> Tensor:
    if node.has("pool_strings"):
        raise ModelError("n-grams of strings are not supported, only of integers")
    attributes: AttributeMap = {
        "mode": node.text("mode"),
        "pool": node.integers("pool_int64s"),
        "weights": node.numbers("weights", ()),
    }
    for name in ("ngram_counts", "ngram_indexes"):
        attributes[name] = node.integers(name)
    for name in ("max_skip_count", "min_gram_length", "max_gram_length"):
        attributes[name] = node.integer(name)
    return node.emit("TfIdfVectorizer", [node.input(0)], attributes)


RULES: Final = default_domain({"TfIdfVectorizer": _tf_idf})
