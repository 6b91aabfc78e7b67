"""The ops that PopART reads in a way of its own: its nodes, written as ONNX means them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import onnx
from onnx import helper

from popc.frontend import InferredType, LoadedModel, find_attribute
from popc.popart.graph_model import GraphModel
from popc.popart.model_names import nodes_of
from popc.popart.options import SessionOptions

__all__ = ["as_popart_reads"]

_Node: TypeAlias = onnx.NodeProto
_TypeOf: TypeAlias = Callable[[str], InferredType | None]
_STRIDED: Final = "strided_channel_grouping"
_FLOAT, _INT32, _INT64 = (onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_GRAPHCORE: Final = "ai.graphcore"


def as_popart_reads(loaded: LoadedModel, options: SessionOptions) -> LoadedModel:
    """The model whose results under ONNX are PopART's for ``loaded``; the same if none differs."""
    type_of = _Types(loaded).of
    if not any(_differs(node, options, type_of) for node in nodes_of(loaded.proto.graph)):
        return loaded
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    _rewrite(model.graph, options, type_of)
    for output in model.graph.output:  # whose declared types may be ONNX's
        output.ClearField("type")
    if all(item.domain != _GRAPHCORE for item in model.opset_import):
        model.opset_import.add(domain=_GRAPHCORE, version=1)
    return replace(loaded, proto=model)


@dataclass
class _Types:
    """The types of the tensors of the outermost graph, when somebody asks for one."""

    loaded: LoadedModel
    _graph: GraphModel | None = None

    def of(self, name: str) -> InferredType | None:
        if self._graph is None:
            self._graph = GraphModel(None, self.loaded.proto, self.loaded.base_dir)
        return self._graph.type_of(name)


def _differs(node: _Node, options: SessionOptions, type_of: _TypeOf) -> bool:
    if node.domain == _GRAPHCORE:
        strided: bool = options.groupNormStridedChannelGrouping
        return node.op_type == "GroupNormalization" and strided
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return rule is not None and bool(rule(node, type_of))


def _subgraphs(node: _Node) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _rewrite(graph: onnx.GraphProto, options: SessionOptions, type_of: _TypeOf) -> None:
    nodes: list[_Node] = []
    for node in graph.node:
        for nested in _subgraphs(node):
            _rewrite(nested, options, type_of)
        if not _differs(node, options, type_of):
            nodes.append(node)
        elif node.domain == _GRAPHCORE:
            changed = _copied(node)
            changed.attribute.append(helper.make_attribute(_STRIDED, 1))
            nodes.append(changed)
        else:
            nodes.extend(_RULES[node.op_type](node, type_of))
    copies = [_copied(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _copied(node: _Node) -> _Node:
    copy = _Node()
    copy.CopyFrom(node)
    return copy


# -- rules: a node as nodes of ONNX's; none if both read it alike ----------------------------------


def _without_axes(node: _Node, _: _TypeOf) -> list[_Node]:
    """A reduction over an empty list of axes reduces nothing; to ONNX it is one over all."""
    axes = find_attribute(node, "axes")
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


def _narrow_places(node: _Node, _: _TypeOf) -> list[_Node]:
    """Places of extremes are INT32."""
    found = _copied(node)
    found.output[0] = f"{node.output[0]}/int64"
    return [found, _beside(node, "Cast", found.output[0], node.output[0], to=_INT32)]


def _narrow_second(node: _Node, _: _TypeOf) -> list[_Node]:
    """Places of the largest are INT32."""
    if len(node.output) < 2 or not node.output[1]:
        return []
    found = _copied(node)
    found.output[1] = f"{node.output[1]}/int64"
    return [found, _beside(node, "Cast", found.output[1], node.output[1], to=_INT32)]


def _any_index(node: _Node, type_of: _TypeOf) -> list[_Node]:
    """Indices may be of any integer type, such as UINT32."""
    known = type_of(node.input[1]) if len(node.input) > 1 else None
    if known is None or known.element in (_INT32, _INT64):
        return []
    found = _copied(node)
    found.input[1] = f"{node.output[0]}/indices"
    return [_beside(node, "Cast", node.input[1], found.input[1], to=_INT32), found]


def _any_shape(node: _Node, _: _TypeOf) -> list[_Node]:
    """A shape may be INT32."""
    filled = _copied(node)
    filled.input[0] = f"{node.output[0]}/shape"
    return [_beside(node, "Cast", node.input[0], filled.input[0], to=_INT64), filled]


def _clipped(node: _Node, type_of: _TypeOf) -> list[_Node]:
    """Bounds may be of another type than what they bound."""
    known = type_of(node.input[0]) if len(node.input) > 1 else None
    if known is None:
        return []
    clipped, casts = _copied(node), []
    for index, name in enumerate(node.input[1:], 1):
        bound = type_of(name) if name else None
        if bound is not None and bound.element != known.element:
            clipped.input[index] = f"{node.output[0]}/{index}"
            casts.append(_beside(node, "Cast", name, clipped.input[index], to=known.element))
    return [*casts, clipped] if casts else []


# What is cut off a result whose shape is given, where it cannot be cut alike on both sides.
_SIDES: Final = {"NOTSET": "SAME_UPPER", "SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER"}


def _other_side(node: _Node, _: _TypeOf) -> list[_Node]:
    """With a given shape, the odd row comes from the other side."""
    shape, automatic = find_attribute(node, "output_shape"), find_attribute(node, "auto_pad")
    side = _SIDES.get("NOTSET" if automatic is None else automatic.s.decode())
    if shape is None or not shape.ints or side is None:
        return []
    return [_changed(node, auto_pad=side)]


def _resized(node: _Node, _: _TypeOf) -> list[_Node]:
    """Scales and sizes may be of any type; some ways to resize are PopART's own.

    Without a mode, opset 10 finds the nearest element as PyTorch does.
    """
    resized, nodes = _copied(node), []
    is_old = len(node.input) == 2
    for index, kind in ((1 if is_old else 2, _FLOAT), (3, _INT64)):
        if index < len(node.input) and node.input[index]:
            resized.input[index] = f"{node.output[0]}/{index}"
            nodes.append(_beside(node, "Cast", node.input[index], resized.input[index], to=kind))
    said = {item.name: item.s.decode() for item in node.attribute if item.s}
    is_nearest = said.get("mode", "nearest") == "nearest"
    by_scales = is_old or (bool(node.input[2]) and not any(node.input[3:4]))
    own = (said.get("nearest_mode") == "pytorch" and is_nearest) or (
        said.get("coordinate_transformation_mode") == "pytorch_half_pixel"
    )
    if by_scales and (own or (is_old and is_nearest)):
        resized = (
            _changed(resized, nearest_mode=said.get("nearest_mode", "pytorch"))
            if is_old
            else resized
        )
        scales = resized.input[1 if is_old else 2]
        del resized.input[1:]
        resized.input.append(scales)
        resized.domain = _GRAPHCORE
    elif own and is_nearest:
        resized = _changed(
            resized, nearest_mode="floor", coordinate_transformation_mode="asymmetric"
        )
    return [*nodes, resized]


def _changed(node: _Node, **attributes: str) -> _Node:
    changed = _copied(node)
    del changed.attribute[:]
    changed.attribute.extend(
        attribute for attribute in node.attribute if attribute.name not in attributes
    )
    changed.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    return changed


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
_INDEXED: Final = ("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements")
_RULES: Final[dict[str, Callable[[_Node, _TypeOf], list[_Node]]]] = {
    **dict.fromkeys(_REDUCTIONS, _without_axes),
    **dict.fromkeys(_INDEXED, _any_index),
    "ArgMax": _narrow_places,
    "ArgMin": _narrow_places,
    "Clip": _clipped,
    "ConstantOfShape": _any_shape,
    "ConvTranspose": _other_side,
    "Resize": _resized,
    "TopK": _narrow_second,
}
