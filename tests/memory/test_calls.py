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
from popc_runtime.device.linking import write_out
from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Block,
    CallBlock,
    DType,
    Instruction,
    ProgramImage,
    Region,
    Slot,
    format_program,
)
from tests.support.pipeline import run_pipeline
from tests.support.random_graphs import first_state, graphs, interpret, random_feeds
from tests.support.small_graphs import SmallGraph


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


# -- what no reader accepts ------------------------------------------------------------------------

_ARENA, _PARAMETER = Region.ARENA, Region.PARAMETER
_SLOTS = (
    Slot(_ARENA, 0, DType.FLOAT32, (4,)),
    Slot(_PARAMETER, 0, DType.FLOAT32, (4,), parameter=0),
    Slot(_PARAMETER, 0, DType.FLOAT32, (4,), parameter=1),
    Slot(Region.CONSTANT, 0, DType.FLOAT32, (4,)),
    Slot(_ARENA, 2, DType.UINT8, (30,)),
    Slot(_ARENA, 0, DType.FLOAT32, (2,)),
    Slot(_ARENA, 0, DType.FLOAT32, (2, 2), (4, 8)),
)
_RELU = Instruction("Relu", (1,), (2,), {}, "relu")


def _calling(*arguments: int, **programs: Block) -> ProgramImage:
    main = (CallBlock("inner", arguments),)
    return ProgramImage(_SLOTS, {"main": main, "inner": (_RELU,), **programs}, 64, 16, 0)


def test_a_call_that_fits_is_accepted() -> None:
    fmt.validate_image(_calling(3, 0))


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (_calling(0), "without its parameter 1"),
        (_calling(0, -1), "without its parameter 1"),
        (_calling(0, 9), "does not exist"),
        (_calling(0, 3), "a constant that is written to"),
        (_calling(0, 5), "does not fit"),
        (_calling(0, 4), "does not fit"),
        (_calling(6, 0), "does not fit"),
        (_calling(0, 0, other=(_RELU,)), "nothing calls it"),
        (_calling(0, 0, inner=(_RELU, CallBlock("inner", (1, 2)))), "calls itself"),
        # What the one in the middle hands on is too small.
        (
            _calling(5, 0, inner=(CallBlock("deep", (1, 2)),), deep=(_RELU,)),
            "does not fit",
        ),
    ],
)
def test_calls_that_do_not_fit_are_refused(image: ProgramImage, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        fmt.validate_image(image)


def test_parameters_need_a_newer_reader_and_nothing_else_does() -> None:
    with_calls, without = _lowered(_stack(3)), _lowered(SmallGraph().output())
    assert fmt.oldest_reader(with_calls) == 1
    assert fmt.oldest_reader(without) == 0
    assert b"call_argument" not in fmt.encode_program(without)


def test_names_of_instructions_are_those_of_the_place_that_calls() -> None:
    body = (Instruction("Relu", (1,), (2,), {"results": ("y{0}",)}, "/layer.{0}/relu"),)
    calls = (CallBlock("inner", (0, 0), ("3",)), CallBlock("inner", (3, 0), ("11",)))
    image = ProgramImage(_SLOTS, {"main": calls, "inner": body}, 64, 16, 0)
    written = write_out(image)
    assert list(written.programs) == ["main"]
    items = [item for item in written.programs["main"] if isinstance(item, Instruction)]
    assert [item.name for item in items] == ["/layer.3/relu", "/layer.11/relu"]
    assert [item.attributes["results"] for item in items] == [("y3",), ("y11",)]
    assert all(slot.region is not Region.PARAMETER for slot in written.slots)


@pytest.mark.parametrize("byte", range(0, 240, 7))
def test_damaged_programs_are_refused_or_valid(byte: int) -> None:
    data = bytearray(fmt.encode_program(_lowered(_stack(2))))
    data[byte * len(data) // 240] ^= 0x15
    try:
        image = fmt.decode_program(bytes(data))
    except CorruptArchiveError:
        return
    fmt.validate_image(image)
    write_out(image)
