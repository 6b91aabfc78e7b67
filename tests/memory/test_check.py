"""The checker sees plans that are wrong, each in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from popc.ir import Op, Tensor
from popc.memory import ConstantBlock, MemoryPlace, MemoryPlan, check_plan, plan_memory
from popc.schedule import Schedule, build_schedule
from popc_runtime.format import DType, Region
from tests.support.small_graphs import SmallGraph


@dataclass
class _Case:
    """A graph with a bit of everything, its schedule, and a plan that a test spoils."""

    small: SmallGraph = field(default_factory=SmallGraph)

    def __post_init__(self) -> None:
        small = self.small
        self.x, self.condition = small.input(4, 4), small.input(dtype=DType.BOOL)
        self.constant = small.constant(np.arange(16).reshape(4, 4))
        self.loaded = small("Neg", self.constant)
        self.chained = small.op("Add", small("Mul", self.x, self.loaded), self.x)
        self.view = small("Transpose", self.chained.output, perm=(1, 0))
        self.maximum = small.op("ReduceMax", self.chained.output, axes=(0,), keepdims=0)
        self.last = small.op("Sub", self.view, self.maximum.output)
        self.concat = small.op("Concat", self.last.output, self.x, axis=0)
        self.loop = small.loop([self.concat.output], [self.maximum.output], self._body)
        self.choice = small.branch(self.condition, [self.view], self._relu, self._relu)
        small.output(self.loop.output, self.choice.output)
        self.schedule = build_schedule(small.graph)
        self.plan = plan_memory(small.graph, self.schedule)
        assert self.problems() == []

    @staticmethod
    def _body(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Copy", t[1]), inner("Pow", t[3], t[2])]

    @staticmethod
    def _relu(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Relu", t[0])]

    def problems(self) -> list[str]:
        return check_plan(self.small.graph, self.schedule, self.plan)

    def move(self, tensor: Tensor, **changes: Any) -> None:
        place = replace(self.plan.placements[tensor], **changes)
        self.plan = replace(self.plan, placements={**self.plan.placements, tensor: place})

    def put(self, tensor: Tensor, where: Tensor) -> None:
        place = self.plan.placements[where]
        self.move(tensor, region=place.region, offset=place.offset, strides=place.strides)


def _forget(case: _Case) -> None:
    places = {t: place for t, place in case.plan.placements.items() if t is not case.x}
    case.plan = replace(case.plan, placements=places)


def _leave_the_region(case: _Case) -> None:
    case.move(case.view, offset=case.plan.arena_bytes - 60)


def _shift(case: _Case) -> None:
    case.move(case.maximum.output, offset=case.plan.placements[case.maximum.output].offset + 2)


def _shift_by_elements(case: _Case) -> None:
    case.move(case.maximum.output, offset=case.plan.placements[case.maximum.output].offset + 4)


def _turn_a_result(case: _Case) -> None:
    case.move(case.loop.output, strides=(4, 32))


def _stretch_a_result(case: _Case) -> None:
    case.move(case.chained.output, strides=(32, 4))


def _turn_a_joined_operand(case: _Case) -> None:
    case.move(case.last.output, strides=(4, 16))


def _turn_the_view_back(case: _Case) -> None:
    case.move(case.view, strides=(16, 4))


def _call_a_result_a_view(case: _Case) -> None:
    case.plan = replace(case.plan, views=case.plan.views | {case.last})


def _share_with_a_capture(case: _Case) -> None:
    body = case.loop.subgraphs["body"]
    case.put(body.outputs[1], case.maximum.output)


def _share_with_the_state(case: _Case) -> None:
    body = case.loop.subgraphs["body"]
    case.put(body.outputs[1], body.inputs[2])


def _part_with_a_capture(case: _Case) -> None:
    inner = case.choice.subgraphs["else_branch"].inputs[0]
    case.move(inner, offset=case.plan.placements[inner].offset + 64)


def _part_with_the_state(case: _Case) -> None:
    state = case.loop.subgraphs["body"].inputs[2]
    case.move(state, offset=case.plan.placements[state].offset + 64)


def _other_bytes(case: _Case) -> None:
    blocks = (ConstantBlock(0, np.zeros(16, np.float32)),)
    case.plan = replace(case.plan, constants=blocks)


def _constant_elsewhere(case: _Case) -> None:
    case.move(case.constant, region=Region.STATE)


def _load_result_in_the_arena(case: _Case) -> None:
    case.move(case.loaded, region=Region.ARENA)


def _result_over_a_constant(case: _Case) -> None:
    case.put(case.chained.output, case.constant)


def _result_over_what_is_read_later(case: _Case) -> None:
    case.put(case.maximum.output, case.x)


def _result_over_its_turned_operand(case: _Case) -> None:
    case.plan = replace(case.plan, inplace={**case.plan.inplace, case.last: 0})
    case.put(case.last.output, case.chained.output)


def _result_over_another_operand(case: _Case) -> None:
    case.plan = replace(case.plan, inplace={**case.plan.inplace, case.chained: 1})


def _joined_elsewhere(case: _Case) -> None:
    assert 0 in case.plan.joined[case.concat]
    output = case.last.output
    case.move(output, offset=case.plan.placements[output].offset + 64)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (_forget, "has no place"),
        (_leave_the_region, "outside of its region"),
        (_shift, "not aligned to its elements"),
        (_shift_by_elements, "not aligned to 64 bytes"),
        (_turn_a_result, "is strided but no view"),
        (_stretch_a_result, "has gaps"),
        (_turn_a_joined_operand, "not where the output wants it"),
        (_turn_the_view_back, "does not show what Transpose"),
        (_call_a_result_a_view, "can be no view"),
        (_share_with_a_capture, "share memory while both are needed"),
        (_share_with_the_state, "share memory while both are needed"),
        (_part_with_a_capture, "lie apart"),
        (_part_with_the_state, "lie apart"),
        (_other_bytes, "are not where it lies"),
        (_constant_elsewhere, "not in the constant region"),
        (_load_result_in_the_arena, "outlives load time"),
        (_result_over_a_constant, "does not lie in the arena"),
        (_result_over_what_is_read_later, "share memory while both are needed"),
        (_result_over_its_turned_operand, "out of step"),
        (_result_over_another_operand, "cannot take over its operand 1"),
        (_joined_elsewhere, "not where the output wants it"),
    ],
)
def test_the_checker_sees(spoil: Callable[[_Case], None], problem: str) -> None:
    case = _Case()
    spoil(case)
    assert any(problem in line for line in case.problems()), case.problems()


def _with(write: Callable[[SmallGraph, Tensor], tuple[Op, Tensor]], **places: Any) -> list[str]:
    """Problems of a plan for one op, called a view, with its output at a given place."""
    small = SmallGraph()
    x = small.input(2, 6)
    op, view = write(small, x)
    schedule = build_schedule(small.graph)
    plan = plan_memory(small.graph, schedule)
    place = replace(plan.placements[x], **places)
    plan = replace(plan, views=plan.views | {op}, placements={**plan.placements, view: place})
    return check_plan(small.graph, Schedule((), schedule.orders), plan)


def _turned_for(reader: str, **attributes: int | tuple[int, ...]) -> list[str]:
    def write(small: SmallGraph, x: Tensor) -> tuple[Op, Tensor]:
        op = small.op("Transpose", x, perm=(1, 0))
        small.output(small(reader, op.output, **attributes) if reader else op.output)
        return op, op.output

    return _with(write, strides=(4, 24))


def test_the_checker_sees_readers_that_need_contiguous_operands() -> None:
    assert _turned_for("Relu") == []
    problems = _turned_for("ReduceMax", axes=(0,), keepdims=0)
    assert "ReduceMax(ReduceMax) cannot read %Transpose: float32[6,2] strided" in problems
    assert "%Transpose: float32[6,2] is strided but an output of its graph" in _turned_for("")


def test_the_checker_sees_strided_states_and_nested_outputs_that_are_views() -> None:
    def write(small: SmallGraph, x: Tensor) -> tuple[Op, Tensor]:
        op = small.op("Transpose", x, perm=(1, 0))
        loop = small.loop(
            [op.output], [], lambda inner, t: [inner("Copy", t[1]), inner("Relu", t[2])]
        )
        small.output(loop.output)
        return op, op.output

    assert any(
        "strided operand that is no capture" in line for line in _with(write, strides=(4, 24))
    )

    small = SmallGraph()
    loop = small.loop(
        [small.input(2, 3)],
        [],
        lambda inner, t: [
            inner("Copy", t[1]),
            inner("Reshape", inner("Reshape", t[2], shape=(6,)), shape=(2, 3)),
        ],
    )
    small.output(loop.output)
    schedule = build_schedule(small.graph)
    plan = plan_memory(small.graph, schedule)
    body = loop.subgraphs["body"]
    copied = body.outputs[1].producer
    assert copied is not None
    places: dict[Tensor, MemoryPlace] = dict(plan.placements)
    places[body.outputs[1]] = places[body.inputs[2]]
    spoiled: MemoryPlan = replace(plan, views=plan.views | {copied}, placements=places)
    problems = check_plan(small.graph, schedule, spoiled)
    assert problems == ["%Reshape_1: float32[2,3] is an output of a nested graph but a view"]
