"""Smaller models, and fewer options, that go wrong in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from popc_runtime.errors import OptionError
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.recipe import Recipe, follow
from tools.campaigns.random_models.trial import Finding, expect, try_options
from tools.campaigns.random_models.value import Value

__all__ = ["Case", "Judge", "judge", "shrink"]


@dataclass(frozen=True)
class Case:
    """A model with options."""

    recipe: Recipe
    options: Mapping[str, Any]


# What is wrong with a case; ``None`` if nothing is.
Judge: TypeAlias = Callable[[Case], "Finding | None"]


def judge(case: Case) -> Finding | None:
    """The finding in a case, judged in this process."""
    try:
        return try_options(expect(case.recipe, follow(case.recipe)), case.options)
    except (OptionError, RefusedError):
        return None


def shrink(case: Case, finding: Finding, ask: Judge = judge, most: int = 400) -> Case:
    """A case from which nothing can be dropped without that it goes well, or goes wrong otherwise.

    ``most`` is how many cases may be tried.
    """
    tried = 0
    smaller = True
    while smaller:
        smaller = False
        for other in _smaller(case):
            tried += 1
            if tried > most:
                return case
            found = ask(other)
            if found is not None and found.signature == finding.signature:
                case, smaller = other, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that are a little smaller, those that are much smaller first."""
    for name in case.options:
        yield replace(case, options={k: v for k, v in case.options.items() if k != name})
    recipe = case.recipe
    for names in _fewer_outputs(recipe):
        yield replace(case, recipe=replace(recipe, outputs=names).pruned())
    try:
        values = follow(recipe)
    except RefusedError:
        return
    for number in reversed(range(len(recipe.nodes))):
        if len(recipe.nodes) > 1:
            yield replace(case, recipe=_without(recipe, number, values))
    for number in reversed(range(len(recipe.nodes))):
        if bypassed := _bypassed(recipe, number, values):
            yield replace(case, recipe=bypassed)


def _fewer_outputs(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    if len(recipe.outputs) > 1:
        for name in recipe.outputs:
            yield (name,)
        for name in recipe.outputs:
            yield tuple(other for other in recipe.outputs if other != name)
    for node in recipe.nodes:
        for name in node.output:
            if name and name not in recipe.outputs:
                yield (name,)


def _without(recipe: Recipe, number: int, values: Mapping[str, Value]) -> Recipe:
    """The model without a node, whose results become inputs."""
    node = recipe.nodes[number]
    inputs = recipe.inputs | {name: values[name].array for name in node.output if name}
    nodes = (*recipe.nodes[:number], *recipe.nodes[number + 1 :])
    outputs = tuple(name for name in recipe.outputs if name not in node.output)
    outputs = outputs or tuple(name for name in nodes[-1].output if name)
    return replace(recipe, inputs=inputs, nodes=nodes, outputs=outputs).pruned()


def _bypassed(recipe: Recipe, number: int, values: Mapping[str, Value]) -> Recipe | None:
    """The model in which readers of a node's result read an operand of the same type instead."""
    node = recipe.nodes[number]
    if len(node.output) != 1 or node.output[0] in recipe.outputs:
        return None
    result = values[node.output[0]]
    for name in node.input:
        if name and _same_type(values[name], result):
            break
    else:
        return None
    nodes = []
    for i, old in enumerate(recipe.nodes):
        new = type(old)()
        new.CopyFrom(old)
        new.input[:] = [name if x == node.output[0] else x for x in old.input]
        nodes += [] if i == number else [new]
    return replace(recipe, nodes=tuple(nodes)).pruned()


def _same_type(a: Value, b: Value) -> bool:
    return a.shape == b.shape and a.array.dtype == b.array.dtype
