"""Which memory is taken over, shared and joined, and why not more."""

from __future__ import annotations

import numpy as np
import pytest

from popc.ir import Op, Tensor
from popc.memory import MemoryPlan, format_plan
from popc_runtime.format import Array, DType, Region
from tests.support.small_graphs import SmallGraph, plan_as_written


def _overlap(plan: MemoryPlan, first: Tensor, second: Tensor) -> bool:
    """Whether two contiguous tensors share bytes."""
    places = plan.placements[first], plan.placements[second]
    assert all(place.strides is None for place in places)
    return (
        places[0].region is places[1].region
        and places[0].offset < places[1].offset + second.type.nbytes
        and places[1].offset < places[0].offset + first.type.nbytes
    )


# -- in place --------------------------------------------------------------------------------------


def test_a_chain_stays_in_place() -> None:
    small = SmallGraph()
    x, other = small.input(4, 6), small.input(6)
    y = small("Add", small("Reshape", small("Relu", x), shape=(4, 6)), other)
    z = small("Sub", y, y)
    small.output(z)
    plan = plan_as_written(small.graph)
    assert set(plan.inplace.values()) == {0}
    assert len(plan.inplace) == 3
    assert plan.placements[z] == plan.placements[x]
    assert plan.arena_bytes == 128 + 64
    assert plan_as_written(small.graph, inplace=False).arena_bytes == 256 + 64


def test_the_second_operand_is_taken_if_the_first_cannot_be() -> None:
    small = SmallGraph()
    x, y = small.input(4), small.input(4)
    total = small.op("Sub", x, y)
    small.output(small("Mul", x, total.output))
    plan = plan_as_written(small.graph)
    assert plan.inplace[total] == 1


def _keep_input(small: SmallGraph, x: Tensor) -> Op:
    op = small.op("Relu", x)
    small.output(x)
    return op


def _read_through_a_view(small: SmallGraph, x: Tensor) -> Op:
    view = small("Reshape", x, shape=(16,))
    op = small.op("Relu", x)
    small.output(small("Neg", view))
    return op


def _part_of_the_buffer(small: SmallGraph, x: Tensor) -> Op:
    return small.op("Relu", small("Slice", x, starts=(1, 0), sizes=(2, 4), steps=(1, 1)))


def _turned(small: SmallGraph, x: Tensor) -> Op:
    return small.op("Relu", small("Transpose", x, perm=(1, 0)))


def _turned_and_straight(small: SmallGraph, x: Tensor) -> Op:
    return small.op("Add", x, small("Transpose", x, perm=(1, 0)))


def _broadcast(small: SmallGraph, x: Tensor) -> Op:
    row = small("Slice", x, starts=(0, 0), sizes=(1, 4), steps=(1, 1))
    return small.op("Add", x, row)


def _another_type(small: SmallGraph, x: Tensor) -> Op:
    larger = small.input(3, 4, 4)
    small.output(larger)
    return small.op("Add", x, larger)


def _constant(small: SmallGraph, x: Tensor) -> Op:
    small.output(x)
    return small.op("Add", small.constant(np.zeros((4, 4))), x)


def _not_elementwise(small: SmallGraph, x: Tensor) -> Op:
    return small.op("Concat", x, axis=1)


@pytest.mark.parametrize(
    "write",
    [
        _keep_input,
        _read_through_a_view,
        _part_of_the_buffer,
        _turned,
        _turned_and_straight,
        _broadcast,
        _another_type,
        _constant,
        _not_elementwise,
    ],
)
def test_an_operand_is_kept(write: object) -> None:
    assert callable(write)
    small = SmallGraph()
    op = write(small, small.input(4, 4))
    small.output(op.output)
    assert op not in plan_as_written(small.graph).inplace


# -- control flow ----------------------------------------------------------------------------------


def test_branches_share_memory_and_results_do_not() -> None:
    small = SmallGraph()
    condition, x = small.input(dtype=DType.BOOL), small.input(100)

    def grow(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        wide = inner("Add", inner("Expand", t[0], shape=(5, 100)), t[0])
        return [inner("ReduceMax", wide, axes=(0,), keepdims=0)]

    op = small.branch(condition, [x], grow, grow)
    small.output(op.output)
    plan = plan_as_written(small.graph)
    insides = [
        next(t for t in g.tensors.values() if t.name == "Add") for g in op.subgraphs.values()
    ]
    assert plan.placements[insides[0]] == plan.placements[insides[1]]
    assert not _overlap(plan, insides[0], op.output)
    assert not _overlap(plan, insides[0], x)


def _count(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
    """One state, one capture, one scan."""
    total = inner("Add", t[2], t[3])
    return [inner("Copy", t[1]), total, inner("Neg", total)]


@pytest.mark.parametrize("kept", [True, False])
def test_a_state_takes_over_its_initial_value(*, kept: bool) -> None:
    small = SmallGraph()
    x, y = small.input(10), small.input(10)
    initial = small("Relu", x)
    op = small.loop([initial], [y], _count)
    small.output(*op.outputs, *([initial] if kept else []))
    plan = plan_as_written(small.graph)
    body = op.subgraphs["body"]
    state, capture = body.inputs[2:]
    assert plan.placements[state] == plan.placements[op.outputs[0]]
    assert plan.placements[capture] == plan.placements[y]
    assert (plan.placements[state] == plan.placements[initial]) is not kept
    value = body.outputs[1]
    assert plan.placements[value] == plan.placements[state]  # and is computed in its place
    for tensor in (*body.inputs[:2], y):
        assert not any(_overlap(plan, tensor, result) for result in body.outputs)


def test_a_state_does_not_take_over_what_another_operand_reads() -> None:
    small = SmallGraph()
    x = small("Relu", small.input(10))

    def swap(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Copy", tensor) for tensor in (t[1], t[3], t[2])]

    op = small.loop([x, x], [], swap)
    small.output(*op.outputs)
    plan = plan_as_written(small.graph)
    assert not any(_overlap(plan, x, output) for output in op.outputs)


def test_the_trip_count_lives_until_the_loop_ends() -> None:
    small = SmallGraph()
    one = small.input(dtype=DType.INT64)
    trips = small("Add", one, one)

    def body(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Copy", t[1]), inner("Add", inner("Neg", t[2]), t[2])]

    op = small.loop([small.input(4)], [], body, trip_count=-1, trip_operand=trips)
    small.output(*op.outputs)
    plan = plan_as_written(small.graph)
    for tensor in (*op.outputs, *op.subgraphs["body"].tensors.values()):
        assert not _overlap(plan, trips, tensor)


def test_an_op_with_other_subgraphs_is_refused() -> None:
    small = SmallGraph()
    nested = SmallGraph("nested")
    small.graph.add_op("Scan", [], [], subgraphs={"callee": nested.graph})
    with pytest.raises(ValueError, match="no Call, If or Loop"):
        plan_as_written(small.graph)


# -- joined Concats --------------------------------------------------------------------------------


def test_operands_are_computed_where_concat_wants_them() -> None:
    small = SmallGraph()
    x = small.input(1, 3)
    first, second = small("Add", x, x), small("Neg", x)
    view = small("Slice", x, starts=(0, 1), sizes=(1, 1), steps=(1, 1))
    joined = small.op("Concat", first, view, second, axis=1)
    again = small.op("Concat", joined.output, small("Neg", joined.output), axis=0)
    small.output(again.output)
    plan = plan_as_written(small.graph)
    assert plan.joined == {joined: frozenset({0, 2}), again: frozenset({0, 1})}
    start = plan.placements[again.output].offset
    assert plan.placements[first].offset == start
    assert plan.placements[second].offset == start + 16
    assert plan_as_written(small.graph, inplace=False).joined == {}


def test_operands_that_interleave_are_not_joined() -> None:
    small = SmallGraph()
    x = small.input(2, 3)
    small.output(small("Concat", small("Neg", x), small("Abs", x), axis=1))
    assert plan_as_written(small.graph).joined == {}


def test_an_operand_is_joined_once() -> None:
    small = SmallGraph()
    x = small("Neg", small.input(3))
    ops = [small.op("Concat", x, x, axis=0), small.op("Concat", x, axis=0)]
    small.output(*(op.output for op in ops), small("ReduceMax", x, axes=(0,), keepdims=0))
    assert plan_as_written(small.graph).joined == {ops[0]: frozenset({0})}


def test_a_join_is_refused_if_the_result_changes_while_the_operand_is_read() -> None:
    small = SmallGraph()
    x, y = small("Neg", small.input(3)), small("Abs", small.input(3))
    join = small.op("Concat", x, y, axis=0)
    overwritten = small.op("Relu", join.output)
    small.output(overwritten.output, small("ReduceMax", x, axes=(0,), keepdims=0))
    plan = plan_as_written(small.graph)
    assert plan.inplace[overwritten] == 0
    assert plan.joined == {join: frozenset({1})}


def test_a_join_must_not_raise_the_peak() -> None:
    small = SmallGraph()
    x = small.input(16)
    early = small("Neg", x)
    wide = small("Expand", x, shape=(8, 16))
    low = small("ReduceMax", small("Add", wide, wide), axes=(0,), keepdims=0)
    late = small("Add", small("Expand", low, shape=(6, 16)), low)
    join = small.op("Concat", small("Reshape", early, shape=(1, 16)), late, axis=0)
    small.output(join.output)
    plan = plan_as_written(small.graph)
    assert plan.joined == {join: frozenset({1})}  # early would reserve seven rows beside the eight
    assert plan.peak_bytes == 64 + 64 + 512


# -- regions ---------------------------------------------------------------------------------------


def test_equal_constants_are_stored_once() -> None:
    small = SmallGraph()
    x = small.input(2)
    data = np.array([1.5, 2.5], np.float32)
    floats, same = small.constant(data), small.constant(data.copy())
    ints = small.constant(data.view(np.int32), DType.INT32)
    other, empty = small.constant([2.5, 1.5]), small.constant(np.zeros((0, 2)))
    strided = small.constant(np.array([1.5, 0, 2.5, 0], np.float32)[::2])
    small.output(small("Add", x, floats), same, ints, other, empty, strided)
    plan = plan_as_written(small.graph)
    assert [block.offset for block in plan.constants] == [0, 64]
    assert plan.constant_bytes == 128
    places = [plan.placements[t].offset for t in (floats, same, ints, other, strided)]
    assert places == [0, 0, 0, 64, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_constants_that_look_alike_are_compared_to_the_last_byte(dtype: type) -> None:
    small = SmallGraph()
    values: Array = np.arange(5000).astype(dtype).reshape(50, 100)
    first, copied = small.constant(values), small.constant(values.T.copy().T)
    others = []
    for place in (1, 300, 2600, 4990):  # few of which are looked at first
        changed = values.copy()
        changed.flat[place] += 1
        others.append(small.constant(changed))
    small.output(first, copied, *others)
    plan = plan_as_written(small.graph)
    assert plan.placements[first].offset == plan.placements[copied].offset
    assert len(plan.constants) == 5


def test_load_time_keeps_what_runs_need_and_reuses_the_rest() -> None:
    small = SmallGraph()
    x, c = small.input(16), small.constant(np.ones(16))
    wide = small("Add", small("Expand", c, shape=(8, 16)), c)
    low = small("ReduceMax", wide, axes=(0,), keepdims=0)
    kept = small("Neg", low)
    small.output(small("Mul", x, kept), kept)
    plan = plan_as_written(small.graph)
    regions = [plan.placements[t].region for t in (wide, low, kept)]
    assert regions == [Region.ARENA, Region.ARENA, Region.STATE]
    assert plan.state_bytes == 64
    assert plan.arena_bytes == 512 + 64  # of load time; a run needs only 64


def test_empty_tensors_take_no_memory() -> None:
    small = SmallGraph()
    x = small.input(0, 4)
    view = small("Slice", small.input(4, 4), starts=(3, 0), sizes=(0, 4), steps=(1, 1))
    small.output(small("Relu", x), small("Relu", view))
    plan = plan_as_written(small.graph)
    assert plan.arena_bytes == 64
    assert plan.inplace == {}


def test_text() -> None:
    small = SmallGraph()
    x, c = small.input(2, 3), small.constant(np.ones((2, 3)))
    y = small("Add", x, c)
    small("Mul", small("Transpose", y, perm=(1, 0)), small.input(3, 2))
    small.output(small("Concat", small("Neg", y), axis=0))
    assert format_plan(plan_as_written(small.graph)) == (
        "arena 128 bytes, in use at one time 128\n"
        "arena 448 bytes without sharing\n"
        "state 0 bytes\n"
        "constant 64 bytes in 1 arrays\n"
        "  %x: float32[2,3] arena+64\n"
        "  %c: float32[2,3] constant+0\n"
        "  %Add: float32[2,3] arena+64, over %x\n"
        "  %Transpose: float32[3,2] arena+64 strides [4,12], view of %Add\n"
        "  %x_1: float32[3,2] arena+0\n"
        "  %Mul: float32[3,2] arena+0, over %x_1\n"
        "  %Neg: float32[2,3] arena+64, over %Add\n"
        "  %Concat: float32[2,3] arena+64, joined %Neg\n"
    )
