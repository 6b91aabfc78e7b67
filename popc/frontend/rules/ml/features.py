"""Operators of ai.onnx.ml that prepare features."""

from __future__ import annotations

from math import isnan
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, reshaped, standard_op
from popc.frontend.rules.ml.scores import ml_domain, rows_of, side_by_side
from popc.frontend.values import TextValue
from popc.frontend.words import places_of
from popc.ir import Tensor
from popc.ops.infer import NUMBERS
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]


def _scaler(node: Node) -> Tensor:
    """(X - offset) * scale, in float32."""
    x = converted(node, node.input(0), DType.FLOAT32)
    for name, op_type in (("offset", "Sub"), ("scale", "Mul")):
        numbers = np.asarray(node.numbers(name, ()), np.float32)
        if len(numbers) not in (1, x.type.shape[-1]):
            raise ModelError(f"{name} has {len(numbers)} numbers for {x.type.shape[-1]} features")
        x = node.emit(op_type, [x, node.constant(numbers)])
    return x


def _normalizer(node: Node) -> Tensor:
    """Rows divided by a norm; those whose norm is 0 stay."""
    x, norm = converted(node, node.input(0), DType.FLOAT32), node.text("norm")
    op_types = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if norm not in op_types:
        raise ModelError(f"there is no norm {norm!r}")
    axes = node.constant(np.array([x.type.rank - 1]))
    size = standard_op(node, op_types[norm], [x, axes], {"keepdims": 1})
    zero, one = (node.constant(np.float32(number)) for number in (0, 1))
    none = node.emit("Equal", [size, zero])
    return node.emit("Div", [x, node.emit("Where", [none, one, size])])


def _binarizer(node: Node) -> Tensor:
    """1 above the threshold, else 0, in the type of X."""
    x = node.input(0)
    limit = np.array(node.number("threshold")).astype(x.type.dtype.storage)
    if not x.type.dtype.is_float:
        limit = np.floor(np.array(node.number("threshold"))).astype(x.type.dtype.storage)
    return converted(node, node.emit("Greater", [x, node.constant(limit)]), x.type.dtype)


def _imputer(node: Node) -> Tensor:
    """Missing elements (equal to a value, or no numbers) become the value of their column."""
    x = node.input(0)
    kind = "floats" if x.type.dtype.is_float else "int64s"
    storage = x.type.dtype.storage
    values = np.asarray(
        node.numbers(f"imputed_value_{kind}", ())
        if x.type.dtype.is_float
        else node.integers(f"imputed_value_{kind}", ()),
        storage,
    )
    if len(values) not in (1, x.type.shape[-1]):
        raise ModelError(f"{len(values)} values are imputed in {x.type.shape[-1]} columns")
    if x.type.dtype.is_float:
        replaced: float = node.number("replaced_value_float")
        missing = _equal_to(node, x, replaced)
    else:
        number = node.constant(np.array(node.integer("replaced_value_int64"), storage))
        missing = node.emit("Equal", [x, number])
    return node.emit("Where", [missing, node.constant(values), x])


def _equal_to(node: Node, x: Tensor, number: float) -> Tensor:
    if isnan(number):
        return node.emit("IsNaN", [x])
    return node.emit("Equal", [x, node.constant(np.array(number, x.type.dtype.storage))])


def _vectorizer(node: Node) -> Tensor:
    """Rows of all inputs side by side; ``inputdimensions`` follow from their shapes."""
    parts = [rows_of(node, index) for index in range(len(node.inputs))]
    wanted = node.integers("inputdimensions", ())
    widths = [part.type.shape[1] for part in parts]
    if wanted and list(wanted) != widths:
        raise ModelError(f"inputs have {widths} columns, not {list(wanted)}")
    return side_by_side(node, *parts)


def _extractor(node: Node) -> Tensor:
    """Elements of the last axis by their numbers; a list gives one row."""
    x, places = node.input(0), node.input(1)
    if x.type.rank < 1:
        raise ModelError("a single value has no elements to take")
    flat = reshaped(node, places, (places.type.size,))
    taken = node.emit("Gather", [x, flat], {"axis": x.type.rank - 1})
    return reshaped(node, taken, (1, places.type.size)) if x.type.rank == 1 else taken


def _one_hot(node: Node) -> Tensor:
    """A last axis with 1 where the element is the category."""
    words, numbers = node.texts("cats_strings", ()), node.integers("cats_int64s", ())
    value = node.value(0)
    if isinstance(value, TextValue):
        categories = words
        x = node.emit("Gather", [_table(node, value, words), places_of(value)], {"axis": 0})
        return _known(node, x, categories)
    x = node.input(0)
    if not numbers or x.type.dtype not in NUMBERS:
        raise ModelError(f"cats_int64s are required for {x.type}")
    if x.type.dtype.is_float:  # of which the whole part counts
        x = converted(node, x, DType.INT64)
    spread = reshaped(node, x, (*x.type.shape, 1))
    known = np.asarray(numbers, np.int64)
    if x.type.dtype is not DType.INT64:
        spread = converted(node, spread, DType.INT64)
    hits = node.emit("Equal", [spread, node.constant(known)])
    return _known(node, converted(node, hits, DType.FLOAT32), numbers)


def _table(node: Node, value: TextValue, categories: tuple[str, ...]) -> Tensor:
    """The row of each word, and at last that of words that are not known."""
    rows: Array = np.zeros((len(value.words) + 1, len(categories)), np.float32)
    for column, category in enumerate(categories):
        if category in value.words:
            rows[value.words.index(category), column] = 1
    return node.constant(rows)


def _known(node: Node, rows: Tensor, categories: tuple[object, ...]) -> Tensor:
    if not categories:
        raise ModelError("categories are required but missing")
    if node.integer("zeros", 1):
        return rows
    total = standard_op(node, "ReduceSum", [rows, node.constant(np.array([-1]))], {"keepdims": 0})
    least = standard_op(node, "ReduceMin", [total], {"keepdims": 0})
    bad = node.emit("Less", [least, node.constant(np.float32(0.5))])
    title = f"{node.name}: an element is none of the categories"
    node.emit_all("Abort", [bad], {"title": title, "stream": node.name})
    return rows


RULES: Final = ml_domain(
    {
        "ArrayFeatureExtractor": _extractor,
        "Binarizer": _binarizer,
        "FeatureVectorizer": _vectorizer,
        "Imputer": _imputer,
        "Normalizer": _normalizer,
        "OneHotEncoder": _one_hot,
        "Scaler": _scaler,
    }
)
