"""Models that were exported for training, changed to what they compute in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.load import LoadedModel
from popc.frontend.walk import graphs_inside, reads

__all__ = ["evaluation_model", "for_inference"]

_ONNX: Final = ("", "ai.onnx")
_MEAN, _VARIANCE = 3, 4  # inputs of BatchNormalization; its outputs from 1 on are new ones in turn


def for_inference(model: onnx.ModelProto) -> None:
    """Let normalisations use their running statistics, and let nothing be dropped out."""
    graphs = [model.graph, *graphs_inside(model.graph.node)]
    bodies = [*graphs, *model.functions]
    bodies += [graph for known in model.functions for graph in graphs_inside(known.node)]
    read = {name for body in bodies for node in body.node for name in node.input}
    read |= {output.name for graph in graphs for output in graph.output}
    read |= {name for function in model.functions for name in function.output}
    for body in bodies:
        nodes = [changed for node in body.node for changed in _changed(node, read)]
        del body.node[:]
        body.node.extend(nodes)


def evaluation_model(loaded: LoadedModel) -> LoadedModel:
    """A copy of a model `for_inference`, without the inputs that no output depends on."""
    proto = onnx.ModelProto()
    proto.CopyFrom(loaded.proto)
    for_inference(proto)
    _drop_unread_inputs(proto)
    return replace(loaded, proto=proto)


def _drop_unread_inputs(model: onnx.ModelProto) -> None:
    """Remove the inputs that no output depends on."""
    wanted = {output.name for output in model.graph.output}
    for node in reversed(model.graph.node):  # which are sorted
        if wanted.intersection(node.output):
            wanted.update(reads(node))
    kept = [info for info in model.graph.input if info.name in wanted]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def _changed(node: onnx.NodeProto, read: set[str]) -> Iterator[onnx.NodeProto]:
    """The node, and what gives the results that it has no longer."""
    yield node
    if node.op_type == "Dropout" and node.domain in _ONNX:
        del node.input[2:]
    elif node.op_type == "BatchNormalization" and node.domain in (*_ONNX, "ai.graphcore"):
        for attribute in node.attribute:
            if attribute.name in ("training_mode", "is_test"):
                attribute.i = int(attribute.name == "is_test")
        from onnx import helper

        left = list(node.output[1:])
        del node.output[1:]
        for index, name in enumerate(left):
            if name in read:
                source = node.input[_VARIANCE if index % 2 else _MEAN]
                yield helper.make_node("Identity", [source], [name])
