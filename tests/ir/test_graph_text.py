"""What is printed can be read, and what the reader refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from popc.ir import Graph, format_graph
from tests.support.graph_text import format_constants, parse_graph
from tests.support.random_graphs import graphs

_HEADER = "graph main(%x: float32[2,3]) {"


@settings(deadline=None, max_examples=25)
@given(graph=graphs())
def test_any_graph_is_read_as_it_was_printed(graph: Graph) -> None:
    text = format_graph(graph)
    assert format_graph(parse_graph(format_constants(graph) + text)) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y: float32[3,2] = Relu(%x)", r"the results are \['float32\[2,3\]'\]"),
        ("%y: float32[2,3] = Add(%x, @w)", "w is not declared"),
        ("%y: float32[2,3] = Add(%x, w)", "not an operand: w"),
    ],
)
def test_mistakes_are_refused(line: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        parse_graph(f"{_HEADER}\n  {line}\n  return y\n}}\n")
