"""Vectorisers of token sequences."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integers
from popc.ops.infer import check_choice, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _tf_idf(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source = operand(inputs, 0)
    check_choice(attributes, "mode", ("TF", "IDF", "TFIDF"))
    if source.dtype not in (DType.INT32, DType.INT64) or source.rank not in (1, 2):
        raise ModelError(f"needs one or two dimensions of int32 or int64, not {source}")
    columns = integers(attributes, "ngram_indexes")
    _check_pool(attributes, len(columns))
    if min(columns, default=-1) < 0:
        raise ModelError(f"output columns must be given and not negative: {list(columns)}")
    shape = (*source.shape[:-1], max(columns) + 1)
    weights = attributes.get("weights", ())
    if weights and (not isinstance(weights, tuple) or len(weights) != len(columns)):
        raise ModelError(f"needs one weight for each of {len(columns)} n-grams")
    return (TensorType(DType.FLOAT32, shape),)


def _check_pool(attributes: Attributes, grams: int) -> None:
    """``ngram_counts[n - 1]`` is where the n-grams start in the pool."""
    counts, pool = integers(attributes, "ngram_counts"), integers(attributes, "pool")
    ends = (*counts[1:], len(pool))
    lengths = [end - start for start, end in zip(counts, ends, strict=False)]
    if counts[:1] != (0,) or any(
        length < 0 or length % size for size, length in enumerate(lengths, start=1)
    ):
        raise ModelError(f"n-gram starts {list(counts)} do not divide a pool of {len(pool)}")
    found = sum(length // size for size, length in enumerate(lengths, start=1))
    if found != grams:
        raise ModelError(f"the pool has {found} n-grams, but {grams} have an output column")


OPS: Final[dict[str, OpSpec]] = {"TfIdfVectorizer": OpSpec(_tf_idf)}
