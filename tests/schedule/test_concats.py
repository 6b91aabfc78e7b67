"""Concats of Concats: what lies in one lies in the outermost, and finding that takes little."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from popc.ir import Graph, TensorType
from popc.ops.aliases import find_aliases
from popc.ops.build import build
from popc.schedule import footprint
from popc.schedule.build_problem import build_problem
from popc.schedule.parts import find_parts
from popc.schedule.problem import OrderingProblem
from popc_runtime.format import DType


def _chain(count: int) -> Graph:
    """Row by row, as a Loop that is unrolled appends to what it has."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (1, 16)))
    whole = build(graph, "Neg", [x]).output
    for _ in range(count):
        row = build(graph, "Abs", [x]).output
        whole = build(graph, "Concat", [whole, row], {"axis": 0}).output
    graph.add_output("y", whole)
    return graph


def _problem(count: int) -> tuple[OrderingProblem, int]:
    """The problem of a chain, and the lines of the footprint's module that were run for it."""
    graph = _chain(count)
    part = max(find_parts(graph), key=lambda part: len(part.ops))
    aliases = find_aliases(graph)
    lines = 0

    def count_lines(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        del argument
        lines += event == "line"
        return count_lines if frame.f_code.co_filename == footprint.__file__ else None

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        return build_problem(part, aliases, lambda op: 0), lines
    finally:
        sys.settrace(before)


def test_all_parts_go_with_the_outermost() -> None:
    problem, _ = _problem(5)
    last = len(problem.freed_with) - 1
    assert problem.freed_with == [0, *[last] * last]  # 0 is the input


def test_the_work_grows_with_the_chain() -> None:
    (_, few), (_, many) = _problem(100), _problem(200)
    assert many < 2.5 * few
