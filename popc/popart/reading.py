"""The ops that PopART reads in a way of its own: its nodes, written as ONNX means them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import onnx
from onnx import helper

from popc.frontend import LoadedModel
from popc.popart.options import SessionOptions

__all__ = ["as_popart_reads"]

_Node: TypeAlias = onnx.NodeProto
_STRIDED: Final = "strided_channel_grouping"
_FLOAT, _INT32, _INT64 = (onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_GRAPHCORE: Final = "ai.graphcore"


def as_popart_reads(loaded: LoadedModel, options: SessionOptions) -> LoadedModel:
    """The model whose results under ONNX are PopART's for ``loaded``; the same if none differs."""
    if not any(_differs(node, options) for node in _all_nodes(loaded.proto.graph)):
        return loaded
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    _rewrite(model.graph, options)
    return replace(loaded, proto=model)


def _differs(node: _Node, options: SessionOptions) -> bool:
    if node.domain == _GRAPHCORE:
        strided: bool = options.groupNormStridedChannelGrouping
        return node.op_type == "GroupNormalization" and strided
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return rule is not None and bool(rule(node))


def _all_nodes(graph: onnx.GraphProto) -> Iterator[_Node]:
    for node in graph.node:
        yield node
        for nested in _subgraphs(node):
            yield from _all_nodes(nested)


def _subgraphs(node: _Node) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _rewrite(graph: onnx.GraphProto, options: SessionOptions) -> None:
    nodes: list[_Node] = []
    for node in graph.node:
        for nested in _subgraphs(node):
            _rewrite(nested, options)
        if not _differs(node, options):
            nodes.append(node)
        elif node.domain == _GRAPHCORE:
            changed = _copied(node)
            changed.attribute.append(helper.make_attribute(_STRIDED, 1))
            nodes.append(changed)
        else:
            nodes.extend(_RULES[node.op_type](node))
    copies = [_copied(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _copied(node: _Node) -> _Node:
    copy = _Node()
    copy.CopyFrom(node)
    return copy


# -- rules: a node as nodes of ONNX's; none if both read it alike ----------------------------------


def _without_axes(node: _Node) -> list[_Node]:
    """A reduction over an empty list of axes reduces nothing; to ONNX it is one over all."""
    axes = _attribute(node, "axes")
    if axes is None or axes.ints:
        return []
    x, result = node.input[0], node.output[0]
    wide = f"{result}/each"
    kept = [attribute for attribute in node.attribute if attribute.name not in ("axes", "keepdims")]
    reduced = _copied(node)
    del reduced.attribute[:], reduced.input[:]
    reduced.input.append(wide)
    reduced.attribute.extend([*kept, helper.make_attribute("axes", [0])])
    reduced.attribute.append(helper.make_attribute("keepdims", 0))
    return [_beside(node, "Unsqueeze", x, wide, axes=[0]), reduced]


def _narrow_places(node: _Node) -> list[_Node]:
    """Places of extremes are INT32."""
    found = _copied(node)
    found.output[0] = f"{node.output[0]}/int64"
    return [found, _beside(node, "Cast", found.output[0], node.output[0], to=_INT32)]


def _any_shape(node: _Node) -> list[_Node]:
    """A shape may be INT32."""
    filled = _copied(node)
    filled.input[0] = f"{node.output[0]}/shape"
    return [_beside(node, "Cast", node.input[0], filled.input[0], to=_INT64), filled]


# What is cut off a result whose shape is given, where it cannot be cut alike on both sides.
_SIDES: Final = {"NOTSET": "SAME_UPPER", "SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER"}


def _other_side(node: _Node) -> list[_Node]:
    """With a given shape, the odd row comes from the other side."""
    shape, automatic = _attribute(node, "output_shape"), _attribute(node, "auto_pad")
    side = _SIDES.get("NOTSET" if automatic is None else automatic.s.decode())
    if shape is None or not shape.ints or side is None:
        return []
    return [_changed(node, auto_pad=side)]


def _resized(node: _Node) -> list[_Node]:
    """PyTorch's way to the nearest element has a name; scales may be of any type."""
    mode = _attribute(node, "nearest_mode")
    resized = _copied(node)
    if mode is not None and mode.s == b"pytorch":
        resized = _changed(node, nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    index = 1 if len(node.input) == 2 else 2
    if index >= len(node.input) or not node.input[index]:
        return [resized]
    resized.input[index] = f"{node.output[0]}/scales"
    return [_beside(node, "Cast", node.input[index], resized.input[index], to=_FLOAT), resized]


def _changed(node: _Node, **attributes: str) -> _Node:
    changed = _copied(node)
    del changed.attribute[:]
    changed.attribute.extend(
        attribute for attribute in node.attribute if attribute.name not in attributes
    )
    changed.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    return changed


def _attribute(node: _Node, name: str) -> onnx.AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _beside(node: _Node, op_type: str, x: str, result: str, **attributes: int | list[int]) -> _Node:
    """A node of an operator of ONNX's with the annotations of another."""
    made = helper.make_node(op_type, [x], [result], node.name)
    made.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    made.attribute.extend(
        attribute for attribute in node.attribute if attribute.name.startswith("__")
    )
    return made


_REDUCTIONS: Final = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
_RULES: Final[dict[str, Callable[[_Node], list[_Node]]]] = {
    **dict.fromkeys(_REDUCTIONS, _without_axes),
    "ArgMax": _narrow_places,
    "ArgMin": _narrow_places,
    "ConstantOfShape": _any_shape,
    "ConvTranspose": _other_side,
    "Resize": _resized,
}
