"""Strings in models: the places of their elements in lists of words.

A program computes with numbers only.  What a model looks words up in is known when it is compiled,
so that strings become places in the list of these words where they enter the program, and only
move until they are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.names import default_domain_name
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import DataDependent
from popc.frontend.values import SizedValue, TableValue, TextValue, Value
from popc.frontend.walk import all_nodes
from popc.ir import OpSettings, Tensor
from popc.ops.build import build
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType, LabelKind
from popc_runtime.ground.frozen import frozen

__all__ = [
    "TensorLabels",
    "known_words",
    "labels_of",
    "looked_up",
    "moved_words",
    "places_of",
    "takes_strings",
]

# Attributes that hold what strings are compared with; those of others only become results.
_LOOKED_UP: Final = frozenset(
    {"cats_strings", "classes_strings", "keys_strings", "keys_tensor", "value", "value_string",
     "value_strings"}
)  # fmt: skip
# Operators that move elements, and which of their operands the elements are.
_MOVES: Final[dict[tuple[str, str], tuple[int, ...]]] = {
    ("ai.onnx.ml", "ArrayFeatureExtractor"): (0,),
    ("", "Where"): (1, 2),
    **{
        ("", op_type): (0,)
        for op_type in (
            *("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape"),
            *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        )
    },
}


_COUNTS: Final = (("", "Shape"), ("", "Size"))  # what looks at no element
_ENCODERS: Final = ("CategoryMapper", "LabelEncoder", "OneHotEncoder")


def takes_strings(domain: str, op_type: str) -> bool:
    """True if an operator takes operands of strings: it moves, compares or encodes them."""
    key = (domain, op_type)
    encodes = domain == "ai.onnx.ml" and op_type in _ENCODERS
    return encodes or key in _MOVES or key in {("", "Concat"), ("", "Equal"), *_COUNTS}


def known_words(model: onnx.ModelProto) -> tuple[str, ...]:
    """The words that a model may compare strings with, in the order in which they occur."""
    found: dict[str, None] = {}
    for tensor in model.graph.initializer:
        found.update(dict.fromkeys(_strings(tensor)))
    functions = (node for function in model.functions for node in function.node)
    for node in all_nodes([*model.graph.node, *functions]):
        for attribute in node.attribute:
            if attribute.name in _LOOKED_UP:
                single = [attribute.s] if attribute.type == onnx.AttributeProto.STRING else []
                words = [*_texts([*single, *attribute.strings]), *_strings(attribute.t)]
                found.update(dict.fromkeys(words))
    return tuple(found)


def _texts(raw: Iterable[bytes]) -> list[str]:
    return [item.decode("utf-8", errors="replace") for item in raw]


def _strings(tensor: onnx.TensorProto) -> list[str]:
    return _texts(tensor.string_data) if tensor.data_type == onnx.TensorProto.STRING else []


@frozen
class TensorLabels:
    """Labels of the elements, or of the last axis, of an input or output."""

    labels: tuple[str, ...] | tuple[int, ...]
    kind: LabelKind


def labels_of(
    importer: OpenGraph, texts: Iterable[str], results: Mapping[str, Value]
) -> dict[str, TensorLabels]:
    """The labels of inputs that are strings, and of results that are strings or lists of maps."""
    inputs = {name: importer.lookup(name) for name in texts}
    found: dict[str, TensorLabels] = {}
    for name, value in (*inputs.items(), *results.items()):
        if isinstance(value, TextValue):
            found[name] = TensorLabels(value.words, LabelKind.ELEMENTS)
        elif isinstance(value, TableValue):
            found[name] = TensorLabels(value.columns, LabelKind.COLUMNS)
    return found


def places_of(text: TextValue) -> Tensor:
    """The places of strings, for what does more than move them.

    Raises:
        DataDependent: data decides how many there are.
    """
    if isinstance(text.numbers, SizedValue):
        raise DataDependent("strings whose number data decides can only be moved")
    return text.numbers


def looked_up(importer: OpenGraph, name: str, text: TextValue, table: Array) -> Tensor:
    """The entries of a table that has one for each word, and at last that of unknown words."""
    numbers = places_of(text)
    entries = importer.constant(table, DType.of(table.dtype))
    settings = OpSettings(origin=name)
    gather = build(importer.graph, "Gather", [entries, numbers], {"axis": 0}, settings=settings)
    return importer.fold_if_small(gather)[0]


def _in_words(
    importer: OpenGraph, name: str, text: TextValue, words: tuple[str, ...]
) -> Tensor | SizedValue:
    """The places of strings in another list of words, which holds all of theirs."""
    if text.words == words:
        return text.numbers
    table = np.array([*(words.index(word) for word in text.words), -1], np.int64)
    return looked_up(importer, name, text, table)


def moved_words(
    importer: OpenGraph, proto: onnx.NodeProto, name: str, inputs: Sequence[Value | None]
) -> list[Value | None] | None:
    """The results of a node that moves, compares or counts strings; ``None`` if it does not.

    Raises:
        ModelError: both operands of a comparison may hold words that are not known.
    """
    key = (default_domain_name(proto.domain), proto.op_type)
    compares = key == ("", "Equal")
    if key in _COUNTS and isinstance(inputs[0], TextValue):
        return list(importer.apply(proto, name, [inputs[0].numbers]))
    if key == ("", "Concat") or compares:
        where: Sequence[int] = range(len(inputs))
    elif key in _MOVES:
        where = _MOVES[key]
    else:
        return None
    texts = {i: value for i in where if isinstance(value := inputs[i], TextValue)}
    if len(texts) != len(where):
        return None
    if compares and all(text.is_open for text in texts.values()):
        raise ModelError("strings are compared that may both be unknown when compiling")
    words = tuple(dict.fromkeys(word for text in texts.values() for word in text.words))
    places = {i: _in_words(importer, name, text, words) for i, text in texts.items()}
    operands = [places.get(i, value) for i, value in enumerate(inputs)]
    results = importer.apply(proto, name, operands)
    if compares:
        return list(results)
    is_open = any(text.is_open for text in texts.values())
    return [
        TextValue(result, words, is_open) if isinstance(result, Tensor | SizedValue) else result
        for result in results
    ]
