"""Rewrite a model before it is differentiated, without losing the tensors that training names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from popc.frontend import ImportedModel
from popc.ir import Graph, Tensor

__all__ = ["GraphRewrite", "rewrite_before_training", "rewrite_with_loss"]

# Edits a graph, but for the tensors that it is given.
GraphRewrite: TypeAlias = Callable[[Graph, Collection[Tensor]], object]


def rewrite_before_training(
    model: ImportedModel, rewrite: Callable[[Graph], object]
) -> ImportedModel:
    """``model`` after ``rewrite`` has edited its graph.

    A rewrite keeps the outputs of a graph and may replace every other tensor.  So the tensors that
    training will ask for, running statistics and their new values are outputs meanwhile.
    """
    graph = model.graph
    outputs = len(graph.outputs)
    names = list(model.values)
    for name in names:
        graph.add_output(name, model.values[name])
    variables = [variable for variable, _ in model.updates]
    for tensor in chain(variables, (value for _, value in model.updates)):
        graph.add_output(tensor.name, tensor)
    rewrite(graph)
    tensors = graph.outputs[outputs:]
    del graph.outputs[outputs:], graph.output_names[outputs:]
    values = tensors[len(names) + len(variables) :]
    return replace(
        model,
        values=_named(names, tensors),
        updates=tuple(zip(variables, values, strict=True)),
    )


def rewrite_with_loss(
    model: ImportedModel, loss: Tensor, anchored: Mapping[str, Tensor], rewrite: GraphRewrite
) -> tuple[ImportedModel, Tensor, dict[str, Tensor]]:
    """``model``, its ``loss`` and ``anchored`` after ``rewrite`` has edited the graph.

    Beside the loss and the new values of running statistics, which are outputs meanwhile, it keeps
    the tensors ``anchored``, whose gradients are asked for.
    """
    graph = model.graph
    outputs = len(graph.outputs)
    updates = [value for _, value in model.updates]
    for tensor in (loss, *anchored.values(), *updates):
        graph.add_output(tensor.name, tensor)
    rewrite(graph, frozenset(anchored.values()))
    loss, *tensors = graph.outputs[outputs:]
    del graph.outputs[outputs:], graph.output_names[outputs:]
    variables = [variable for variable, _ in model.updates]
    updated = zip(variables, tensors[len(anchored) :], strict=True)
    named = dict(zip(anchored, tensors, strict=False))
    return replace(model, updates=tuple(updated)), loss, named


def _named(names: list[str], tensors: list[Tensor]) -> dict[str, Tensor]:
    return dict(zip(names, tensors, strict=False))
