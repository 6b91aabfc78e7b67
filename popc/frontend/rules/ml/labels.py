"""Labels and categories of ai.onnx.ml: tables of what stands for what."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.ml.scores import ml_domain
from popc.frontend.values import TableValue, TextValue, Value
from popc.frontend.words import looked_up
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]

_KINDS: Final = {"strings": str, "int64s": np.int64, "floats": np.float32}
_DEFAULTS: Final = {"strings": "default_string", "int64s": "default_int64",
                    "floats": "default_float"}  # fmt: skip


def _label_encoder(node: Node) -> Value:
    if node.version < 2:
        return _by_classes(node, "classes_strings")
    keys, values = _side(node, "keys"), _side(node, "values")
    if len(keys) != len(values):
        raise ModelError(f"{len(keys)} keys have {len(values)} values")
    return _mapped(node, keys, values, _default(node, values))


def _by_classes(node: Node, name: str) -> Value:
    """LabelEncoder-1: the places of words, or the words of places."""
    words = list(node.texts(name, ()))
    places = np.arange(len(words), dtype=np.int64)
    return _both_ways(node, words, places)


def _category_mapper(node: Node) -> Value:
    words, numbers = list(node.texts("cats_strings", ())), node.integers("cats_int64s", ())
    if len(words) != len(numbers):
        raise ModelError(f"{len(words)} strings have {len(numbers)} numbers")
    return _both_ways(node, words, np.array(numbers, np.int64))


def _both_ways(node: Node, words: list[str], numbers: Array) -> Value:
    if isinstance(node.value(0), TextValue):
        return _mapped(node, words, numbers, np.int64(node.integer("default_int64")))
    return _mapped(node, numbers, words, node.text("default_string"))


def _side(node: Node, side: str) -> list[str] | Array:
    """Keys or values: a list of words, or an array."""
    found = [kind for kind in _KINDS if node.has(f"{side}_{kind}")]
    if node.has(f"{side}_tensor"):
        found.append("tensor")
    if len(found) != 1:
        raise ModelError(f"{side} must be given in one form, not {len(found)}")
    (kind,) = found
    if kind == "strings":
        return list(node.texts(f"{side}_strings"))
    if kind == "int64s":
        return np.array(node.integers(f"{side}_int64s"), np.int64)
    if kind == "floats":
        return np.array(node.numbers(f"{side}_floats"), np.float32)
    text = node.constant_text(f"{side}_tensor")
    if text is not None:
        return list(text.words)
    return node.tensor(f"{side}_tensor")[1].reshape(-1)


def _default(node: Node, values: list[str] | Array) -> Any:
    """The value of everything that is no key, in the type of the values."""
    text = node.constant_text("default_tensor")
    if text is not None and isinstance(values, list):
        return "".join(text.words[:1])
    if node.has("default_tensor"):
        return node.tensor("default_tensor")[1].reshape(-1)[0]
    if isinstance(values, list):
        return node.text("default_string")
    if values.dtype.kind == "f":
        return values.dtype.type(node.number("default_float"))
    return values.dtype.type(node.integer("default_int64"))


def _mapped(node: Node, keys: list[str] | Array, values: list[str] | Array, default: Any) -> Value:
    """The value of the first key that an element is equal to."""
    if not len(keys):
        raise ModelError("there are no keys")
    if isinstance(values, list):
        words = tuple(dict.fromkeys([*values, default]))
        places = {word: place for place, word in enumerate(words)}
        numbers = np.array([places[value] for value in values], np.int64)
        found = _looked_up(node, keys, numbers, np.int64(places[default]))
        return TextValue(found, words)
    return _looked_up(node, keys, values, default)


def _looked_up(node: Node, keys: list[str] | Array, values: Array, default: Any) -> Tensor:
    if isinstance(keys, list):
        text = node.words(0)
        first = dict(reversed(list(zip(keys, values, strict=True))))
        table = np.array([*(first.get(word, default) for word in text.words), default])
        return looked_up(node.importer, node.name, text, table.astype(values.dtype))
    x = node.input(0)
    if x.type.dtype.storage != keys.dtype:
        x = converted(node, x, DType.of(keys.dtype))
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    found = _numbers(node, x, keys[~missing], values[~missing], default)
    if missing.any():
        value = node.constant(values[missing][0])
        found = node.emit("Where", [node.emit("IsNaN", [x]), value, found])
    return found


def _numbers(node: Node, x: Tensor, keys: Array, values: Array, default: Any) -> Tensor:
    """The value of a number: that of its place among the sorted keys, if it is equal to the key."""
    if not len(keys):
        return node.emit("Expand", [node.constant(values.dtype.type(default))],
                         {"shape": x.type.shape})  # fmt: skip
    known, first = np.unique(keys, return_index=True)
    place = _place(node, x, known)
    key = node.emit("Gather", [node.constant(known), place], {"axis": 0})
    value = node.emit("Gather", [node.constant(values[first]), place], {"axis": 0})
    other = node.constant(values.dtype.type(default))
    return node.emit("Where", [node.emit("Equal", [key, x]), value, other])


def _place(node: Node, x: Tensor, known: Array) -> Tensor:
    """The place of the last of the sorted numbers that is not above ``x``; 0 if all are."""
    if known.dtype.itemsize < 4:
        x, known = converted(node, x, DType.INT32), known.astype(np.int32)
    return node.emit("Bucketize", [x, node.constant(known[1:])], {"right": 1})


def _zip_map(node: Node) -> Value:
    """Rows whose columns have names."""
    x = node.input(0)
    words, numbers = node.texts("classlabels_strings", ()), node.integers("classlabels_int64s", ())
    columns: tuple[str, ...] | tuple[int, ...] = words or numbers
    if x.type.rank not in (1, 2) or len(columns) != x.type.shape[-1]:
        raise ModelError(f"{len(columns)} labels do not name the columns of {x.type}")
    rows = x if x.type.rank == 2 else node.emit("Reshape", [x], {"shape": (1, x.type.size)})
    return TableValue(rows, columns)


RULES: Final = ml_domain(
    {
        "CategoryMapper": _category_mapper,
        "LabelEncoder": _label_encoder,
        "ZipMap": _zip_map,
    }
)
