"""Nodes that PopART refuses: what it has no code for, though popc could compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import onnx

from popc.popart.model_names import known_names, nodes_of, place_of
from popc.popart.op_errors import op_text

__all__ = ["refusals"]

_Node: TypeAlias = onnx.NodeProto
_T: Final = onnx.TensorProto
_CLIP_BOUNDS: Final = ("min", "max")
_ACTIVATIONS_WITHOUT_CODE: Final = frozenset(
    {"affine", "elu", "leakyrelu", "scaledtanh", "softplus", "softsign"} | {"thresholdedrelu"}
)


def refusals(model: onnx.ModelProto, *, pipelines: bool) -> Iterator[str]:
    """PopART's words about each node that it does not take, in the order of the nodes."""
    for node in nodes_of(model.graph):
        check = _CHECKS.get(node.op_type)
        if check is not None:
            yield from check(node, model)
        if pipelines and node.op_type == "Call":
            yield from _called(node, model)


def _called(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    """In a pipeline, each op of a graph that is called has to say where its caller is."""
    here = place_of(node)
    opset = next((item.version for item in model.opset_import if not item.domain), 1)
    for graph in (item.g for item in node.attribute if item.HasField("g")):
        for op in graph.node:
            place = place_of(op)
            if place is None and op.op_type != "Constant":
                yield (
                    f'Op {op_text(op, opset)} in subgraph "{graph.name}" does not have a virtual '
                    f"graph id. When pipelining, subgraph ops must have a virtual graph id set."
                )
            elif place is not None and place != here:
                yield (
                    f"The virtual graph id {place} for Op {op_text(op, opset)} in subgraph "
                    f'"{graph.name}" does not match the virtual graph id {here} of the calling op. '
                    f"When pipelining, subgraph ops must have a virtual graph id matching the "
                    f"calling op."
                )


def _attributes(node: _Node) -> Mapping[str, onnx.AttributeProto]:
    return {attribute.name: attribute for attribute in node.attribute}


def _named(node: _Node, version: int) -> str:
    return f"Op {node.name}({node.domain or 'ai.onnx'}.{node.op_type}:{version})"


def _clip(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    bounds = [pair for pair in zip(_CLIP_BOUNDS, node.input[1:], strict=False) if pair[1]]
    known = known_names(model.graph) if bounds else set()
    for number, (what, name) in enumerate(bounds):
        if name not in known and number < len(_CLIP_BOUNDS):
            yield (
                f"{_named(node, 11)}, inputs=[{node.input[0]}] currently only supports constant "
                f"min/max parameters. Input '{what}' ({name}) has no data."
            )


def _reverse(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    del model
    dimensions = [
        int(dim)
        for name, item in _attributes(node).items()
        if name == "dimensions"
        for dim in item.ints
    ]
    for place, dim in enumerate(dimensions):
        if dim < 0:
            yield (
                f"{_named(node, 1)} has invalid dimension '{dim}'. Only positive dimensions are "
                f"supported"
            )
        if dim in dimensions[:place]:
            yield f"{_named(node, 1)}: Dimension {dim} appears multiple times in the list"


def _average_pool(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    del model
    counted = _attributes(node).get("count_include_pad")
    if counted is not None and counted.i:
        yield "`count_include_pad` is not supported"


def _max_pool(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    del model
    dilations = _attributes(node).get("dilations")
    if dilations is not None and any(factor != 1 for factor in dilations.ints):
        yield "Dilations of value other than 1 are currently not supported."


def _random(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    found = _attributes(node)
    if "seed" in found:
        yield (
            f"{_named(node, 1)}: Optional seed attribute is not supported. "
            f"Use session::setRandomSeed instead."
        )
    if "dtype" in found:
        if found["dtype"].i == _T.DOUBLE:
            yield "The data type DOUBLE is not supported in Poplar"
        return
    types = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
    if any(types.get(name) == _T.DOUBLE for name in node.input):
        yield f"{_named(node, 1)}: Unsupported data type requested: DOUBLE"


def _recurrent(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    del model
    activations = _attributes(node).get("activations")
    for name in () if activations is None else activations.strings:
        if name.decode().lower() in _ACTIVATIONS_WITHOUT_CODE:
            yield f"Activation function {name.decode()} of {node.op_type} is not supported"


def _resize(node: _Node, model: onnx.ModelProto) -> Iterator[str]:
    given = [name for name in node.input[2:4] if name]
    if len(given) < 2:
        return
    sizes = _element_counts(model)
    if all(sizes.get(name, 1) for name in given):
        yield (
            "Resize op has inputs for `sizes` and `scales`. Only one of these tensors should be "
            "present. If `sizes` is needed, please pass an empty string as the name of `scales` in "
            "the input list ( resize([X, roi, '', sizes]) ). If the proto is not generated from "
            "the PopART Builder, please confirm that only one of the two tensors shall have data."
        )


def _element_counts(model: onnx.ModelProto) -> dict[str, int]:
    """The lengths of lists that are initializers or constants."""
    held = {weight.name: weight for weight in model.graph.initializer}
    for node in nodes_of(model.graph):
        if node.op_type == "Constant":
            held.update((node.output[0], item.t) for item in node.attribute if item.HasField("t"))
    return {name: tensor.dims[0] for name, tensor in held.items() if tensor.dims}


_CHECKS: Final[dict[str, Callable[[_Node, onnx.ModelProto], Iterator[str]]]] = {
    "AveragePool": _average_pool,
    "Clip": _clip,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "MaxPool": _max_pool,
    "RNN": _recurrent,
    "RandomNormal": _random,
    "RandomNormalLike": _random,
    "RandomUniform": _random,
    "RandomUniformLike": _random,
    "Resize": _resize,
    "Reverse": _reverse,
}
