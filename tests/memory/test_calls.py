"""Graphs that are called from several places: their memory, their programs, what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import popc_runtime.format as fmt
from popc.ir import Graph, Op, Tensor
from popc.lowering import lower
from popc.memory import check_plan, plan_memory
from popc.schedule import build_schedule
from popc_runtime.format import CallBlock, ProgramImage, Region, format_program
from tests.pipeline import run_pipeline
from tests.random_graphs import first_state, graphs, interpret, random_feeds
from tests.small_graphs import SmallGraph


def _lowered(graph: Graph) -> ProgramImage:
    schedule = build_schedule(graph)
    plan = plan_memory(graph, schedule)
    assert check_plan(graph, schedule, plan) == []
    return lower(graph, schedule, plan)


@settings(deadline=None, max_examples=60)
@given(graph=graphs(variables=False))
def test_programs_with_calls_compute_the_right_values(graph: Graph) -> None:
    feeds = random_feeds(graph, 3)
    wanted = interpret(graph, feeds, first_state(graph))
    names = [tensor.name for tensor in graph.inputs]
    output_names = list(graph.output_names)
    for number, name in enumerate(output_names):
        graph.output_names[number] = f"{name}{number}"
    results = run_pipeline(graph, dict(zip(names, feeds, strict=True)))
    for number, value in enumerate(wanted):
        np.testing.assert_array_equal(results[f"{output_names[number]}{number}"], value)


def _layer(width: int) -> Graph:
    """relu(x @ w) + x, and a row of it."""
    inner = SmallGraph("layer")
    x, weight = inner.input(4, width), inner.input(width, width)
    hidden = inner("Relu", inner("MatMul", x, inner("Transpose", weight, perm=(1, 0))))
    result = inner("Add", hidden, x)
    row = inner("Copy", inner("Slice", result, starts=(1, 0), sizes=(1, width), steps=(1, 1)))
    return inner.output(result, row)


def _call(small: SmallGraph, callee: Graph, *operands: Tensor) -> Op:
    types = [tensor.type for tensor in callee.outputs]
    return small.graph.add_op("Call", operands, types, subgraphs={"callee": callee})


def _stack(count: int, width: int = 16) -> Graph:
    small, callee = SmallGraph(), _layer(width)
    x, rows = small.input(4, width), []
    rng = np.random.default_rng(2)
    for _ in range(count):
        weight = small.constant(rng.normal(size=(width, width)))
        x, row = _call(small, callee, x, weight).outputs
        rows.append(row)
    return small.output(x, small("Concat", *rows, axis=0))


def test_a_program_is_stored_once() -> None:
    image = _lowered(_stack(6))
    assert list(image.programs) == ["main", "layer"]
    calls = [item for item in image.programs["main"] if isinstance(item, CallBlock)]
    assert [call.program for call in calls] == ["layer"] * 6
    assert len(image.programs["main"]) == 6  # the rows are written where the Concat wants them
    assert len(image.programs["layer"]) == 4
    assert fmt.decode_program(fmt.encode_program(image)) == image


def test_calls_print_what_they_hand_over() -> None:
    text = format_program(_lowered(_stack(2)))
    assert "call layer(arena[0]:float32[4,16], constants" not in text
    assert "  call layer(" in text
    assert "program layer {" in text
    assert "parameter 0[0]:float32[4,16]" in text
    assert "parameter 1[0]:float32[16,16] strides [4, 64]" in text
