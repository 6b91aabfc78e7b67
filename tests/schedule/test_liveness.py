"""What counts as live, in units of allocation of 64 bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from popc.ir import Graph, Tensor, VariableRole
from popc.memory import plan_memory
from popc.options import Algorithm, ScheduleOptions
from popc.schedule import Liveness, build_schedule, measure_liveness
from popc_runtime.format import DType
from tests.support.random_graphs import graphs
from tests.support.small_graphs import SmallGraph


def _as_written(graph: Graph, *, inplace: bool = True) -> Liveness:
    load = build_schedule(graph).load
    orders = {part: tuple(op for op in part.ops if op not in load) for part in graph.walk()}
    return measure_liveness(graph, orders, inplace=inplace)


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("algorithm", [Algorithm.CHOOSE_BEST, Algorithm.POST_ORDER, Algorithm.KAHN])
@settings(deadline=None, max_examples=50)
@given(graph=graphs(nested=False))
def test_it_is_what_the_memory_planner_needs(
    algorithm: Algorithm, graph: Graph, *, inplace: bool
) -> None:
    options = ScheduleOptions(scheduling_algorithm=algorithm)
    schedule = build_schedule(graph, options, inplace=inplace)
    plan = plan_memory(graph, schedule, inplace=inplace)
    at_load = [report.peak for report in schedule.reports if report.name == "load"]
    measured = measure_liveness(graph, schedule.orders, inplace=inplace).peak
    if inplace and any(op.op_type == "Concat" for op in graph.ops):
        return  # results may have to be reserved early, or not
    if inplace and graph.variables:  # a new value may happen to be computed when all have read
        assert plan.peak_bytes <= max([measured, *at_load])
    else:
        assert plan.peak_bytes == max([measured, *at_load])


def test_sizes_are_whole_units() -> None:
    small = SmallGraph()
    x = small.input(17)
    small.output(small("MatMul", small("Reshape", x, shape=(1, 17)), small.input(17, 1)))
    assert _as_written(small.graph) == Liveness((0 + 256, 256 + 64), 320, 576)


def test_a_result_takes_over_what_dies() -> None:
    small = SmallGraph()
    tensor = small.input(16)
    for _ in range(3):
        tensor = small("Relu", tensor)
    small.output(tensor)
    assert _as_written(small.graph) == Liveness((64, 64, 64), 64, 192)
    assert _as_written(small.graph, inplace=False) == Liveness((128, 128, 128), 128, 384)


def test_views_need_nothing_and_keep_what_they_show() -> None:
    small = SmallGraph()
    x = small.input(4, 16)
    turned = small("Transpose", x, perm=(1, 0))
    small.output(small("Add", turned, turned))
    assert _as_written(small.graph).steps == (256, 512)


def test_constants_and_load_results_do_not_count() -> None:
    small = SmallGraph()
    x, c = small.input(16), small.constant(range(16))
    small.output(small("Add", x, small("Neg", c)))
    assert _as_written(small.graph) == Liveness((64,), 64, 64)


def test_unused_results_live_for_one_step_and_outputs_to_the_end() -> None:
    small = SmallGraph()
    x = small.input(16)
    y = small("Relu", x)
    small.op("Neg", y)
    small.output(y, x)
    assert _as_written(small.graph).steps == (128, 192)


def test_operands_of_a_concat_lie_in_the_result() -> None:
    small = SmallGraph()
    x = small.input(4, 16)
    parts = [small("ReduceMax", x, axes=(0,), keepdims=0) for _ in range(2)]
    joined = small("Concat", *parts, axis=0)
    results = [small("ReduceMax", t, axes=(0,), keepdims=1) for t in (joined, parts[0])]
    small.output(*results)
    # x and the parts; these alone; the results beside them, as the first part is read at last
    assert _as_written(small.graph).steps == (256 + 64, 256 + 128, 128, 128 + 64, 128 + 128)


def test_a_concat_takes_over_what_dies_if_its_result_may_be_overwritten() -> None:
    small = SmallGraph()
    x = small.input(16)
    joined = small("Concat", small("Relu", x), small("Neg", x), axis=0)
    small.output(small("Exp", joined))
    assert _as_written(small.graph).steps == (128, 128, 128, 128)


def test_new_values_of_variables_are_computed_in_the_variable() -> None:
    small = SmallGraph()
    x = small.input(16)
    variable = small.graph.add_variable("v", x.type, VariableRole.WEIGHT)
    small.op("CopyVarUpdate", variable, small("Sub", variable, x))
    assert _as_written(small.graph).steps == (64, 0)


def test_an_op_with_subgraphs_adds_the_larger_of_their_peaks() -> None:
    small = SmallGraph()
    condition, x = small.input(dtype=DType.BOOL), small.input(16)

    def wide(inner: SmallGraph, t: list[Tensor]) -> Tensor:
        return inner("Expand", t[0], shape=(4, 16))

    chosen = small.branch(
        condition,
        [x],
        lambda inner, t: [inner("Relu", t[0])],
        lambda inner, t: [inner("ReduceMax", inner("Exp", wide(inner, t)), axes=(0,), keepdims=0)],
    )
    small.output(chosen.output)
    # condition, x and the result; inside, the matrix and its maximum
    assert _as_written(small.graph).steps == (64 + 64 + 64 + 256 + 64,)


def test_states_of_a_loop_take_over_their_initial_values() -> None:
    small = SmallGraph()
    x = small.input(16)

    def write(inner: SmallGraph, t: list[Tensor]) -> list[Tensor]:
        return [inner("Copy", t[1]), inner("Add", t[2], t[2])]

    small.output(small.loop([x], [], write).output)
    # the state, iteration and condition; the next condition
    assert _as_written(small.graph).steps == (64 + 2 * 64 + 64,)


def test_an_empty_graph_holds_its_inputs() -> None:
    small = SmallGraph()
    small.output(small.input(3))
    assert _as_written(small.graph) == Liveness((), 64, 0)
