from __future__ import annotations

from hypothesis import given, settings

from popc.ir import Graph, Op, Tensor
from popc.schedule import Liveness, build_schedule, measure_liveness
from popc_runtime.format import DType
from tests.random_graphs import graphs
from tests.small_graphs import SmallGraph


def _measure(graph: Graph) -> Liveness:
    return measure_liveness(graph, build_schedule(graph).orders)


def test_a_chain_holds_two_tensors_at_a_time() -> None:
    small = SmallGraph()
    tensor = small.input(4)
    for _ in range(3):
        tensor = small("Relu", tensor)
    small.output(tensor)
    assert _measure(small.graph) == Liveness((32, 32, 32), 32, 96)


def test_constants_and_load_results_do_not_count() -> None:
    small = SmallGraph()
    x, c = small.input(4), small.constant([1, 2, 3, 4])
    small.output(small("Add", x, small("Neg", c)))
    assert _measure(small.graph) == Liveness((32,), 32, 32)


def test_unused_results_live_for_one_step_and_outputs_to_the_end() -> None:
    small = SmallGraph()
    x = small.input(2)
    y = small("Relu", x)
    small.op("Neg", y)
    small.output(y, x)
    assert _measure(small.graph).steps == (16, 24)


def test_an_op_with_subgraphs_adds_the_larger_of_their_peaks() -> None:
    small = SmallGraph()
    condition, x = small.input(dtype=DType.BOOL), small.input(4)
    chosen = small.branch(
        condition,
        [x],
        lambda inner, t: [inner("Relu", t[0])],
        lambda inner, t: [inner("Abs", inner("Neg", t[0]))],
    )
    small.output(chosen.output)
    # condition, x and the result; inside Neg and Abs
    assert _measure(small.graph).steps == (1 + 16 + 16 + 32,)


def test_an_empty_graph_holds_its_outputs() -> None:
    small = SmallGraph()
    small.output(small.input(3))
    assert _measure(small.graph) == Liveness((), 12, 0)


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_steps_agree_with_a_count_from_scratch(graph: Graph) -> None:
    schedule = build_schedule(graph)
    assert measure_liveness(graph, schedule.orders).steps == tuple(
        _naive_step(graph, graph.inputs, schedule.orders[graph], index, dict(schedule.orders))
        for index in range(len(schedule.orders[graph]))
    )


def _naive_step(
    graph: Graph,
    inputs: list[Tensor],
    order: tuple[Op, ...],
    index: int,
    orders: dict[Graph, tuple[Op, ...]],
) -> int:
    begun = {t for op in order[: index + 1] for t in op.outputs} | set(inputs)
    needed = {t for op in order[index:] for t in (*op.present_inputs, *graph.outputs)}
    live = sum(t.type.nbytes for t in begun & (needed | set(order[index].outputs)))
    peaks = [0]
    for nested in order[index].subgraphs.values():
        peaks += [
            _naive_step(nested, [], orders[nested], step, orders)
            for step in range(len(orders[nested]))
        ]
    return live + max(peaks)
