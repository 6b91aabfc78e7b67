"""Models divided by their layers, which names of nodes tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from popc.ir import Graph
from popc.placement.layers import split_by_layers
from popc_runtime.errors import OptionError
from tests.support.small_graphs import SmallGraph


def _graph(names: Sequence[str]) -> Graph:
    """A chain of ops of these names."""
    small = SmallGraph()
    value = small.input(2)
    for name in names:
        value = small("Relu", value)
        assert value.producer is not None
        value.producer.settings.origin = name
    small.graph.add_output("y", value)
    return small.graph


def _chips(names: Sequence[str], layers: Sequence[int]) -> list[int | None]:
    graph = _graph(names)
    assert split_by_layers(graph, layers) == len(names)
    return [op.settings.virtual_graph for op in graph.topological()]


_BERT = ["/embed", *(f"/encoder/layer.{n}/{op}" for n in range(4) for op in "ab"), "/head"]


@pytest.mark.parametrize(
    ("layers", "chips"),
    [
        ([1, 1, 1, 1], [0, 0, 0, 1, 1, 2, 2, 3, 3, 3]),
        ([0, 4], [0, *[1] * 9]),
        ([4, 0], [*[0] * 9, 1]),
        ([-1, -1], [*[0] * 5, *[1] * 5]),
        ([1, -1, -1], [*[0] * 3, 1, 1, *[2] * 5]),
        ([-1, -1, 1], [*[0] * 3, *[1] * 4, 2, 2, 2]),
    ],
)
def test_layers_go_where_they_are_wanted(layers: list[int], chips: list[int]) -> None:
    assert _chips(_BERT, layers) == chips


@pytest.mark.parametrize(
    "pattern",
    ["/h.{}/mlp", "transformer.h.{}.attn", "block_{}/add", "model/blocks/{}/x", "layers.{}"],
)
def test_names_of_layers(pattern: str) -> None:
    assert _chips([pattern.format(number) for number in (0, 1, 2)], [1, 2]) == [0, 1, 1]


def test_several_stacks_count_as_one() -> None:
    names = [f"/{stack}/layer.{number}/x" for stack in ("encoder", "decoder") for number in (0, 1)]
    assert _chips(names, [1, 2, 1]) == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("names", "layers", "message"),
    [
        (["a", "b"], [1, 1], "no name of a node tells one"),
        (_BERT, [1, 1], "are 2 layers, but the model has 4"),
        (_BERT, [3, 2, -1], "are 5 layers, but the model has 4"),
    ],
)
def test_layers_that_are_not_there(names: list[str], layers: list[int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        split_by_layers(_graph(names), layers)
