"""Which ops are views, and why not more."""

from __future__ import annotations

import numpy as np

from popc.ir import Tensor, VariableRole
from popc.memory import MemoryPlace, MemoryPlan, check_plan, plan_memory
from popc.ops.build import build
from popc.schedule import build_schedule, check_schedule
from popc_runtime.format import DType, Region
from tests.support.small_graphs import SmallGraph, plan_as_written


def _is_view(plan: MemoryPlan, tensor: Tensor) -> bool:
    return tensor.producer in plan.views


def test_views_lie_in_their_source() -> None:
    small = SmallGraph()
    x = small.input(4, 6)
    y = small("Relu", x)
    part = small("Slice", y, starts=(1, 5), sizes=(2, 3), steps=(2, -2))
    turned = small("Transpose", part, perm=(1, 0))
    small.output(small("Add", turned, turned))
    plan = plan_as_written(small.graph)
    base = plan.placements[y]
    assert plan.placements[part] == MemoryPlace(base.region, base.offset + 24 + 20, (48, -8))
    assert plan.placements[turned] == MemoryPlace(base.region, base.offset + 44, (-8, 48))
    assert plan.views == {part.producer, turned.producer}


def test_contiguous_views_have_no_strides() -> None:
    small = SmallGraph()
    x = small.input(4, 6)
    rows = small("Slice", x, starts=(1, 0), sizes=(2, 6), steps=(1, 1))
    flat = small("Reshape", rows, shape=(3, 4))
    single = small("Transpose", small("Reshape", x, shape=(1, 24)), perm=(1, 0))
    small.output(flat, single)
    plan = plan_as_written(small.graph)
    base = plan.placements[x].offset
    assert plan.placements[flat] == MemoryPlace(Region.ARENA, base + 24)
    assert plan.placements[single] == MemoryPlace(Region.ARENA, base)


def test_a_strided_view_needs_readers_that_accept_it() -> None:
    small = SmallGraph()
    x = small.input(4, 6)
    for_max, for_add = small("Transpose", x, perm=(1, 0)), small("Transpose", x, perm=(1, 0))
    output = small("Transpose", x, perm=(1, 0))
    small.output(
        small("ReduceMax", for_max, axes=(0,), keepdims=0), small("Add", for_add, for_add), output
    )
    plan = plan_as_written(small.graph)
    assert [_is_view(plan, t) for t in (for_max, for_add, output)] == [False, True, False]


def test_only_the_last_of_a_chain_of_views_is_copied() -> None:
    small = SmallGraph()
    x = small.input(4, 6)
    turned = small("Transpose", x, perm=(1, 0))
    flat = small("Reshape", turned, shape=(24,))
    small.output(small("ReduceMax", flat, axes=(0,), keepdims=0))
    plan = plan_as_written(small.graph)
    assert _is_view(plan, turned)
    assert not _is_view(plan, flat)


def test_all_outputs_of_a_split_are_views_or_none() -> None:
    small = SmallGraph()
    x = small.input(2, 6)
    split = small.op("Split", x, axis=1, split=(2, 4))
    small.output(
        small("Relu", split.outputs[0]),
        small("ReduceMax", split.outputs[1], axes=(0,), keepdims=0),
    )
    assert split not in plan_as_written(small.graph).views


def test_views_of_constants_and_load_results() -> None:
    small = SmallGraph()
    x, c = small.input(3, 2), small.constant(np.arange(6).reshape(2, 3))
    turned = small("Transpose", c, perm=(1, 0))
    negative = small("Neg", turned)
    row = small("Slice", negative, starts=(1, 0), sizes=(1, 2), steps=(1, 1))
    small.output(small("Add", small("Add", x, turned), row))
    plan = plan_as_written(small.graph)
    assert plan.placements[turned] == MemoryPlace(Region.CONSTANT, 0, (4, 12))
    assert plan.placements[negative] == MemoryPlace(Region.STATE, 0)
    assert plan.placements[row] == MemoryPlace(Region.STATE, 8)


def test_variables_are_viewed_until_they_are_overwritten() -> None:
    small = SmallGraph()
    x = small.input(3)
    variable = small.graph.add_variable("w", x.type, VariableRole.WEIGHT)
    flat = small("Reshape", variable, shape=(1, 3))
    value = small("Sub", variable, x)
    late = small("Mul", flat, flat)
    build(small.graph, "CopyVarUpdate", [variable, value])
    small.output(late)
    schedule = build_schedule(small.graph)
    plan = plan_memory(small.graph, schedule)
    assert check_schedule(small.graph, schedule) == []
    assert check_plan(small.graph, schedule, plan) == []
    assert plan.placements[variable].region is Region.STATE
    assert _is_view(plan, flat)
    assert plan.placements[value] == plan.placements[variable]  # Sub runs last, in place


def test_captures_are_viewed_if_the_branches_can_read_them() -> None:
    small = SmallGraph()
    condition, x = small.input(dtype=DType.BOOL), small.input(4, 6)
    views = [small("Transpose", x, perm=(1, 0)) for _ in range(2)]
    op = small.branch(
        condition,
        views,
        lambda inner, t: [inner("ReduceMax", t[0], axes=(0,), keepdims=0)],
        lambda inner, t: [inner("Relu", inner("Slice", t[1], starts=(0, 0), sizes=(1, 4),
                                              steps=(1, 1)))],
    )  # fmt: skip
    small.output(op.output)
    plan = plan_as_written(small.graph)
    assert [_is_view(plan, view) for view in views] == [False, True]
    inner = op.subgraphs["else_branch"].inputs[1]
    assert plan.placements[inner] == plan.placements[views[1]]


def test_initial_states_and_nested_outputs_are_no_strided_views() -> None:
    small = SmallGraph()
    x = small.input(2, 6)
    turned = small("Transpose", x, perm=(1, 0))

    def body(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Copy", t[1]), inner("Reshape", inner("Relu", t[2]), shape=(6, 2))]

    op = small.loop([turned], [], body)
    small.output(op.output)
    plan = plan_as_written(small.graph)
    assert not _is_view(plan, turned)
    result = op.subgraphs["body"].outputs[1]
    assert not _is_view(plan, result)  # though contiguous
