from __future__ import annotations

import pytest
from hypothesis import given, settings

from popc.ir import Graph, Op, Tensor, TensorType
from popc.options import ScheduleOptions
from popc.schedule import (
    Algorithm,
    Schedule,
    TieBreaker,
    build_schedule,
    check_schedule,
    compare_algorithms,
    format_schedule,
    measure_liveness,
)
from popc_runtime.format import DType
from tests.support.random_graphs import graphs
from tests.support.small_graphs import SmallGraph
from tests.support.work import counted_calls


def _names(ops: tuple[Op, ...]) -> list[str]:
    return [op.outputs[0].name if op.outputs else op.op_type for op in ops]


def _kahn(tie_breaker: TieBreaker) -> ScheduleOptions:
    """Kahn's algorithm and nothing else."""
    return ScheduleOptions(
        scheduling_algorithm=Algorithm.KAHN, kahn_tie_breaker=tie_breaker, swap_limit_scheduler=0
    )


def _order(graph: Graph, tie_breaker: TieBreaker = TieBreaker.GREEDY) -> list[str]:
    schedule = build_schedule(graph, _kahn(tie_breaker))
    assert check_schedule(graph, schedule) == []
    return _names(schedule.orders[graph])


_OPTIONS = [
    *(ScheduleOptions(scheduling_algorithm=algorithm) for algorithm in Algorithm),
    *(_kahn(tie_breaker) for tie_breaker in TieBreaker),
    ScheduleOptions(transitive_closure_optimization_threshold=0),
    ScheduleOptions(scheduler_work_limit=10),
]


@pytest.mark.parametrize("options", _OPTIONS)
@settings(deadline=None, max_examples=25)
@given(graph=graphs())
def test_random_graphs_get_legal_and_repeatable_schedules(
    options: ScheduleOptions, graph: Graph
) -> None:
    schedule = build_schedule(graph, options)
    assert check_schedule(graph, schedule) == []
    assert build_schedule(graph, options) == schedule


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_the_best_is_not_worse_than_any(graph: Graph) -> None:
    best = measure_liveness(graph, build_schedule(graph).orders).peak
    others = compare_algorithms(graph)
    assert [item.name for item in others] == [
        "kahn greedy",
        "kahn fifo",
        "kahn random",
        "clustering",
        "post_order",
        "look_ahead",
        "shortest_path",
    ]
    assert all(best <= item.peak for item in others)


# -- tie-breakers ----------------------------------------------------------------------------------


def _fork() -> SmallGraph:
    """Two branches: Expand grows and then shrinks again, Relu changes nothing."""
    small = SmallGraph()
    x = small.input(4)
    wide = small("Expand", x, shape=(8, 4))
    low = small("ReduceMax", wide, axes=(0,), keepdims=0)
    same = small("Relu", x)
    small.output(small("Add", same, low))
    return small


@pytest.mark.parametrize(
    ("tie_breaker", "expected"),
    [
        # Relu first would keep x alive all the same: it adds 16 bytes, Expand 128
        (TieBreaker.GREEDY, ["Relu", "Expand", "ReduceMax", "Add"]),
        # of the ops ready from the start the last, then always what became ready last
        (TieBreaker.FIFO, ["Relu", "Expand", "ReduceMax", "Add"]),
    ],
)
def test_tie_breakers_on_a_fork(tie_breaker: TieBreaker, expected: list[str]) -> None:
    assert _order(_fork().graph, tie_breaker) == expected


def test_fifo_takes_what_became_ready_last() -> None:
    small = SmallGraph()
    x = small.input(4)
    tensors = [small("Relu", x), small("Neg", x)]
    small.output(*[small("Abs", tensor) for tensor in tensors])
    assert _order(small.graph, TieBreaker.FIFO) == ["Neg", "Abs_1", "Relu", "Abs"]


def test_greedy_prefers_what_frees_memory_and_then_the_latest() -> None:
    small = SmallGraph()
    x, y = small.input(100), small.input(10)
    small.output(
        small("ReduceMax", x, axes=(0,), keepdims=0),
        small("ReduceMax", y, axes=(0,), keepdims=0),
        small("ReduceMax", y, axes=(0,), keepdims=0),
    )
    # the first frees 400 bytes; then the two others are equal, so that the latest goes first
    assert _order(small.graph) == ["ReduceMax", "ReduceMax_2", "ReduceMax_1"]


def test_random_varies_the_order_but_not_from_run_to_run() -> None:
    small = SmallGraph()
    x = small.input(4)
    small.output(*[small("Relu", x) for _ in range(20)])
    first = _order(small.graph, TieBreaker.RANDOM)
    assert first == _order(small.graph, TieBreaker.RANDOM)
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


@pytest.mark.parametrize("tie_breaker", list(TieBreaker))
def test_priority_goes_before_the_tie_breaker(tie_breaker: TieBreaker) -> None:
    small = SmallGraph()
    x = small.input(4)
    priorities = [0.0, 3.0, -1.0, 2.5]
    results = [small.op("Relu", x, priority=value).output for value in priorities]
    small.output(*results)
    assert _order(small.graph, tie_breaker) == ["Relu_1", "Relu_3", "Relu", "Relu_2"]


# -- constraints -----------------------------------------------------------------------------------


def _streams() -> SmallGraph:
    small = SmallGraph()
    loads = [
        small("HostLoad", stream=stream, dtype="float32", shape=(size,))
        for stream, size in (("a", 9), ("b", 9), ("a", 1), ("b", 5), ("a", 4))
    ]
    for tensor in loads:
        small.op("HostStore", tensor, stream="out")
    return small


@pytest.mark.parametrize("tie_breaker", list(TieBreaker))
def test_a_stream_keeps_its_order(tie_breaker: TieBreaker) -> None:
    graph = _streams().graph
    order = build_schedule(graph, _kahn(tie_breaker)).orders[graph]
    for stream in ("a", "b", "out"):
        inserted = [op for op in graph.ops if op.attributes["stream"] == stream]
        assert [op for op in order if op in inserted] == inserted


def test_a_cycle_is_reported_with_its_ops() -> None:
    small = SmallGraph()
    x = small.input(4)
    first = small.op("Add", x, x)
    second = small.op("Relu", first.output)
    small.graph.set_input(first, 1, second.output)
    small.graph.add_output("y", second.output)
    with pytest.raises(ValueError, match="cycle"):
        build_schedule(small.graph)


def test_streams_and_data_that_contradict_each_other_are_reported() -> None:
    graph = SmallGraph().graph
    type_ = TensorType(DType.FLOAT32, (4,))
    first, second = (
        graph.add_op("HostLoad", [None], [type_], {"stream": "s"}, output_names=[name])
        for name in ("one", "two")
    )
    graph.set_input(first, 0, second.output)
    message = r"HostLoad\(one\) -> HostLoad\(two\) -> HostLoad\(one\)"
    with pytest.raises(ValueError, match=message):
        build_schedule(graph)


@pytest.mark.parametrize("options", _OPTIONS)
def test_random_numbers_are_drawn_in_one_order(options: ScheduleOptions) -> None:
    small = SmallGraph()
    for size in (5, 1, 9, 3):
        drawn = small("RandomUniform", low=0.0, high=1.0, shape=(size,), to="float32")
        small.output(small("Exp", drawn))
    graph = small.graph
    order = build_schedule(graph, options).orders[graph]
    drawing = [op for op in order if op.op_type == "RandomUniform"]
    assert drawing == [op for op in graph.ops if op.op_type == "RandomUniform"]


# -- load time -------------------------------------------------------------------------------------


def test_what_depends_on_constants_only_runs_at_load_time() -> None:
    small = SmallGraph()
    x, c = small.input(4), small.constant([1, 2, 3, 4])
    negative = small("Neg", c)
    both = small("Add", negative, c)
    chosen = small.branch(
        small.constant(1, DType.BOOL),
        [both],
        lambda inner, inputs: [inner("Relu", inputs[0])],
        lambda inner, inputs: [inner("Abs", inputs[0])],
    ).output
    loaded = small("HostLoad", stream="s", dtype="float32", shape=(4,))
    small.output(small("Add", x, chosen), small("Add", loaded, c))
    schedule = build_schedule(small.graph)
    assert _names(schedule.load) == ["Neg", "Add", "If"]
    assert check_schedule(small.graph, schedule) == []
    assert len(schedule.orders) == 3


def test_side_effects_in_a_subgraph_keep_its_op_out_of_load_time() -> None:
    small = SmallGraph()

    def store(inner: SmallGraph, inputs: list[Tensor]) -> list[Tensor]:
        inner.op("HostStore", inputs[0], stream="s")
        return []

    c = small.constant([1.0])
    small.branch(small.constant(1, DType.BOOL), [c], store, store)
    schedule = build_schedule(small.graph)
    assert schedule.load == ()
    assert check_schedule(small.graph, schedule) == []


# -- the checker, the text, the time it takes ------------------------------------------------------


def _broken_schedules() -> list[tuple[Graph, Schedule, str]]:
    small = _fork()
    graph = small.graph
    order = build_schedule(graph).orders[graph]
    streams = _streams().graph
    transfers = build_schedule(streams).orders[streams]
    return [
        (graph, Schedule((), {}), "not those that the graph holds"),
        (graph, Schedule((), {graph: order[:-1]}), "does not hold every op once"),
        (graph, Schedule((), {graph: (*order, order[0])}), "does not hold every op once"),
        (graph, Schedule((), {graph: order[::-1]}), "runs before"),
        (graph, Schedule(order[:1], {graph: order[1:]}), "mixed up"),
        (streams, Schedule((), {streams: transfers[::-1]}), "stream 'a' is out of order"),
    ]


@pytest.mark.parametrize(("graph", "schedule", "problem"), _broken_schedules())
def test_the_checker_sees(graph: Graph, schedule: Schedule, problem: str) -> None:
    assert any(problem in line for line in check_schedule(graph, schedule))


def test_text() -> None:
    small = SmallGraph()
    x, c = small.input(2), small.constant([1, 2])
    total = small("Add", x, small("Neg", c))
    small.loop([total], [], lambda inner, t: [inner("Copy", t[1]), inner("Relu", t[2])])
    small.op("HostStore", total, stream="s")
    assert format_schedule(build_schedule(small.graph)) == (
        "load\n"
        "  %Neg = Neg(%c)\n"
        "graph main\n"
        "  %Add = Add(%x, %Neg)\n"
        "  HostStore(%Add)\n"
        "  %Loop = Loop(-, -, %Add)\n"
        "graph body\n"
        "  %Relu = Relu(%in_2)\n"
        "  %Copy = Copy(%in_1)\n"
        "live in body: peak 128 (proven), sum 192\n"
        "  kahn: peak 128, sum 192, chosen, 0 moves\n"
        "  clustering: peak 128, sum 192\n"
        "  post_order: peak 128, sum 256\n"
        "  shortest_path: peak 128, sum 192\n"
        "  kahn fifo: peak 128, sum 192\n"
        "live in main: peak 256 (proven), sum 384\n"
        "  kahn: peak 256, sum 384, chosen, 0 moves\n"
        "  clustering: peak 256, sum 384\n"
        "  post_order: peak 320, sum 448\n"
        "  shortest_path: peak 256, sum 384\n"
        "  kahn fifo: peak 256, sum 384\n"
    )


def test_a_search_that_begins_late_does_nothing() -> None:
    small = SmallGraph()
    x = small.input(4)
    small.output(*(small("ReduceMax", x, axes=(0,), keepdims=0) for _ in range(4)))
    late = build_schedule(small.graph, ScheduleOptions(time_limit_scheduler=0.0))
    assert check_schedule(small.graph, late) == []
    assert [report.moves for report in late.reports] == [0]


def _wide(width: int) -> SmallGraph:
    """So many ops that are ready at once, of ten each; one tensor is read by all."""
    small = SmallGraph()
    x = small.input(4)
    for _ in range(width):
        tensor = x
        for _ in range(10):
            tensor = small("Add", tensor, x)
    return small


def test_the_work_for_wide_graphs_grows_as_they_do() -> None:
    counts: list[int] = []
    for width in (100, 400):
        small = _wide(width)
        with counted_calls() as calls:
            schedule = build_schedule(small.graph, ScheduleOptions())
        counts.append(calls())
        assert len(schedule.orders[small.graph]) == 10 * width
    few, many = counts
    assert many < 6 * few


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", Algorithm)
def test_twenty_thousand_ops_take_moments(algorithm: Algorithm) -> None:
    small = _wide(2_000)
    schedule = build_schedule(small.graph, ScheduleOptions(scheduling_algorithm=algorithm))
    assert len(schedule.orders[small.graph]) == 20_000  # one to three seconds, not minutes
