"""Variables in rows: Concats of them that cost nothing, and updates in place."""

from __future__ import annotations

from popc.ir import Tensor, TensorType, VariableRole
from popc.memory import MemoryPlan, check_plan, plan_memory
from popc.ops.build import build
from popc.schedule import build_schedule, check_schedule
from popc_runtime.format import DType, Region
from tests.support.small_graphs import SmallGraph


def _variable(small: SmallGraph, name: str, *shape: int) -> Tensor:
    return small.graph.add_variable(name, TensorType(DType.FLOAT32, shape), VariableRole.WEIGHT)


def _planned(small: SmallGraph) -> MemoryPlan:
    graph = small.graph
    schedule = build_schedule(graph)
    plan = plan_memory(graph, schedule)
    assert check_schedule(graph, schedule) == []
    assert check_plan(graph, schedule, plan) == []
    return plan


def _row(small: SmallGraph, *tensors: Tensor) -> Tensor:
    flat = [small("Reshape", tensor, shape=(1, tensor.type.size)) for tensor in tensors]
    return small("Concat", *flat, axis=1)


def _offsets(plan: MemoryPlan, *tensors: Tensor) -> list[int]:
    first = plan.placements[tensors[0]].offset
    return [plan.placements[tensor].offset - first for tensor in tensors]


def test_a_row_is_no_copy_and_is_updated_in_place() -> None:
    small = SmallGraph()
    a, b, c = _variable(small, "a", 3), _variable(small, "b", 2, 2), _variable(small, "c", 5)
    row = _row(small, c, a, b)
    updated = small("Add", row, small.input(1, 12))
    parts = build(small.graph, "Split", [updated], {"axis": 1, "split": (5, 3, 4)}).outputs
    for variable, part in zip((c, a, b), parts, strict=True):
        small.op("CopyVarUpdate", variable, small("Reshape", part, shape=variable.type.shape))
    plan = _planned(small)
    assert _offsets(plan, c, a, b, row, updated) == [0, 20, 32, 0, 0]
    assert plan.placements[updated].region is Region.STATE
    assert row.producer in plan.views
    assert updated.producer in plan.inplace


def test_parts_of_a_variable_are_updated_by_several_ops() -> None:
    small = SmallGraph()
    a, b = _variable(small, "a", 6), _variable(small, "b", 6)
    flat = small("Reshape", b, shape=(1, 6))
    cuts = [small("Slice", flat, starts=(0, start), sizes=(1, 3), steps=(1, 1)) for start in (0, 3)]
    first = small("Concat", small("Reshape", a, shape=(1, 6)), cuts[0], axis=1)
    moved = small("Neg", first)
    parts = build(small.graph, "Split", [moved], {"axis": 1, "split": (6, 3)}).outputs
    rest = small("Exp", cuts[1])
    small.op("CopyVarUpdate", a, small("Reshape", parts[0], shape=(6,)))
    small.op("CopyVarUpdate", b, parts[1], start=0)
    small.op("CopyVarUpdate", b, rest, start=3)
    plan = _planned(small)
    assert _offsets(plan, a, b, moved, rest) == [0, 24, 0, 36]
    assert {moved.producer, rest.producer} == set(plan.inplace)


def test_who_reads_the_old_value_later_prevents_it() -> None:
    """The old row is added to what is computed from the new one."""
    small = SmallGraph()
    a, b = _variable(small, "a", 4), _variable(small, "b", 4)
    row = _row(small, a, b)
    updated = small("Exp", row)
    small.output(small("Add", small("Neg", updated), row))
    parts = build(small.graph, "Split", [updated], {"axis": 1, "split": (4, 4)}).outputs
    for variable, part in zip((a, b), parts, strict=True):
        small.op("CopyVarUpdate", variable, small("Reshape", part, shape=(4,)))
    plan = _planned(small)
    assert plan.placements[updated].region is Region.ARENA


def test_a_variable_has_one_place() -> None:
    """The second Concat asks for another order, the third for a row with itself."""
    small = SmallGraph()
    a, b = _variable(small, "a", 4), _variable(small, "b", 4)
    rows = [_row(small, a, b), _row(small, b, a), _row(small, a, a)]
    small.output(*(small("Neg", row) for row in rows))
    plan = _planned(small)
    assert [row.producer in plan.views for row in rows] == [True, False, False]


def test_rows_grow() -> None:
    small = SmallGraph()
    a, b, c = (_variable(small, name, 4) for name in "abc")
    rows = [_row(small, b, c), _row(small, a, b), _row(small, c, a), _row(small, a, b, c)]
    small.output(*(small("Neg", row) for row in rows))
    plan = _planned(small)
    assert [row.producer in plan.views for row in rows] == [True, True, False, True]
    assert _offsets(plan, a, b, c) == [0, 16, 32]
