"""Drawings for Graphviz: every op is a box, every use an arrow, whatever names contain."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings

from popc.ir import Graph, OpSettings, TensorType, format_dot
from popc.ops.build import build
from popc_runtime.format import DType
from tests.support.random_graphs import graphs

_STRING = r'"(?:[^"\\]|\\.)*"'
_BOX = re.compile(rf"op\d+ \[label={_STRING}(?:, \w+={_STRING})*\];")
_ARROW = re.compile(rf"op\d+ -> op\d+ \[(?:label={_STRING}|style=\w+)\];")
_OTHER = re.compile(
    rf"digraph {_STRING} {{|subgraph cluster_\d+ {{|label={_STRING};|}}|(?:node|edge) \[.*\];"
)


def _count(text: str) -> tuple[int, int]:
    """Boxes and arrows; refuses lines that are neither these nor frames."""
    boxes = arrows = depth = 0
    for line in map(str.strip, text.splitlines()):
        boxes += _BOX.fullmatch(line) is not None
        arrows += _ARROW.fullmatch(line) is not None
        depth += line.endswith("{") - (line == "}")
        assert any(form.fullmatch(line) for form in (_BOX, _ARROW, _OTHER)), line
    assert depth == 0
    return boxes, arrows


@given(graphs())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_op_and_every_use_is_drawn(graph: Graph) -> None:
    ops = [op for nested in graph.walk() for op in nested.ops]
    uses = sum(len(tensor.uses) for op in ops for tensor in op.outputs)
    assert _count(format_dot(graph)) == (len(ops), uses)


def _chain(length: int, name: str = "x") -> Graph:
    graph = Graph("main")
    tensor = graph.add_input(name, TensorType(DType.FLOAT32, (2,)))
    for number in range(length):
        settings_ = OpSettings(virtual_graph=number)
        tensor = build(graph, "Relu", [tensor], settings=settings_).output
        graph.rename(tensor, f"{name}{number}")
    return graph


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "<b>", "line\nbreak", "ü{}|"])
def test_names_are_escaped(name: str) -> None:
    assert _count(format_dot(_chain(2, name))) == (2, 1)


@pytest.mark.parametrize(("first", "last", "expected"), [(0, 2, 2), (3, None, 2), (4, 9, 1)])
def test_a_window_shows_some_ops(first: int, last: int | None, expected: int) -> None:
    boxes, arrows = _count(format_dot(_chain(5), first=first, last=last))
    assert (boxes, arrows) == (expected, expected - 1)


def test_chips_differ_in_colour() -> None:
    colours = re.findall(r'fillcolor="(#\w+)"', format_dot(_chain(3)))
    assert len(set(colours)) == 3
