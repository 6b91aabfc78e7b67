"""The order of parts, and where they cross from one place to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from popc.cost import estimate_costs
from popc.ir import AttributeMap, Graph, Op, OpSettings, Tensor, TensorType
from popc.memory import plan_memory
from popc.ops.build import build
from popc.options import PartsSchedule, resolve_options
from popc.schedule import build_schedule
from popc.target import find_target
from popc.transforms.batch_serialization import BatchSchedule, BatchSerialization
from popc.transforms.batch_serialization.check import find_disorder, find_mixed_parts
from popc_runtime.format import DType
from popc_runtime.kernels.core.stored import to_bfloat16
from tests.support.random_graphs import interpret

_ROWS = TensorType(DType.FLOAT32, (6, 2))
_MATRIX = TensorType(DType.FLOAT32, (2, 2))


def _chain(*settings: OpSettings) -> Graph:
    """y = x w w ..., each product with settings of its own."""
    graph = Graph("chain")
    x = graph.add_input("x", _ROWS)
    w = graph.add_constant("w", _MATRIX, np.array([[1, 2], [0, 1]], np.float32))
    for setting in settings:
        x = build(graph, "MatMul", [x, w], settings=replace(setting, origin="product")).output
    graph.add_output("y", x)
    return graph


def _serialized(graph: Graph, **options: Any) -> Graph:
    named = {f"batch_serialization_{name}": value for name, value in options.items()}
    cut = resolve_options(values={"batch_serialization_factor": 3, **named})
    BatchSerialization(cut)(graph, check=True)
    assert find_mixed_parts(graph, 3) == []
    return graph


def _scheduled(graph: Graph, kind: str) -> Sequence[Op]:
    BatchSchedule(PartsSchedule(kind), lambda item: build_schedule(item).orders)(graph, check=True)
    return build_schedule(graph).orders[graph]


# -- places ----------------------------------------------------------------------------------------

_PLACES = {
    "virtual_graph": (OpSettings(virtual_graph=0), OpSettings(virtual_graph=1)),
    "pipeline_stage": (OpSettings(pipeline_stage=0), OpSettings(pipeline_stage=1)),
    "execution_phase": (OpSettings(execution_phase=0), OpSettings(execution_phase=1)),
}


@pytest.mark.parametrize("method", ["unroll_static", "unroll_dynamic", "loop"])
@pytest.mark.parametrize("kind", _PLACES)
def test_parts_are_put_together_where_the_place_changes(kind: str, method: str) -> None:
    first, second = _PLACES[kind]
    plain, x = _chain(first, first, second), np.arange(12, dtype=np.float32).reshape(6, 2)
    graph = _serialized(_chain(first, first, second), method=method)
    np.testing.assert_array_equal(interpret(graph, [x])[0], interpret(plain, [x])[0])
    joins = [op for op in graph.ops if op.op_type in ("Concat", "Pad", "Reshape")]
    assert len(joins) == 2
    assert [getattr(op.settings, kind) for op in joins] == [0, 1]
    if method == "loop":
        loops = [op for op in graph.ops if op.op_type == "Loop"]
        assert [getattr(op.settings, kind) for op in loops] == [0, 1]


@pytest.mark.parametrize("kind", _PLACES)
def test_parts_cross_if_they_may(kind: str) -> None:
    first, second = _PLACES[kind]
    flag = {f"concat_on_{kind}_change": False}
    graph = _serialized(_chain(first, second), method="unroll_static", **flag)
    assert sum(op.op_type == "Concat" for op in graph.ops) == 1
    other = next(place for place in _PLACES if place != kind)
    graph = _serialized(_chain(*_PLACES[other]), method="unroll_static", **flag)
    assert sum(op.op_type == "Concat" for op in graph.ops) == 2


@pytest.mark.parametrize(("may_cross", "copies"), [(False, 1), (True, 3)])
def test_copies_between_chips(*, may_cross: bool, copies: int) -> None:
    """A whole tensor is copied, or its parts."""
    graph = Graph("two chips")
    x = graph.add_input("x", _ROWS)
    here, there = _PLACES["virtual_graph"]
    y = build(graph, "Relu", [x], settings=here).output
    y = build(graph, "IpuCopy", [y], {"source": 0, "destination": 1}, settings=here).output
    graph.add_output("y", build(graph, "Exp", [y], settings=there).output)
    _serialized(graph, method="unroll_static", concat_on_virtual_graph_change=not may_cross)
    found = [op for op in graph.ops if op.op_type == "IpuCopy"]
    assert len(found) == copies
    slices = [op for op in graph.ops if op.op_type == "Slice"]
    assert {op.settings.virtual_graph for op in slices} == ({0} if may_cross else {0, 1})


# -- what is combined ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["unroll_static", "loop"])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64, DType.INT32])
@pytest.mark.parametrize("kind", ["Mean", "Sum", "Max", "Min", "Prod"])
def test_reductions_over_the_batch(kind: str, dtype: DType, method: str) -> None:
    """Small integers: sums are exact in every type."""
    if kind == "Mean" and not dtype.is_float:
        pytest.skip("means of integers stay whole")
    plain, cut = Graph("plain"), Graph("cut")
    for graph in (plain, cut):
        x = graph.add_input("x", TensorType(dtype, (6, 2)))
        x = build(graph, "Neg", [x]).output
        attributes: AttributeMap = {"axes": (0,), "keepdims": 0}
        graph.add_output("y", build(graph, f"Reduce{kind}", [x], attributes).output)
    _serialized(cut, method=method)
    numbers = np.array([[-3, 1], [2, 4], [1, -1], [3, 2], [-1, 3], [4, 3]])
    values = numbers.astype(np.float32 if dtype.is_float else np.int32)
    stored = to_bfloat16(values) if dtype is DType.BFLOAT16 else values.astype(dtype.storage)
    stored = stored.reshape(6, 2)
    found = interpret(cut, [stored])[0]
    np.testing.assert_array_equal(found, interpret(plain, [stored])[0])


# -- order -----------------------------------------------------------------------------------------


def _branches() -> Graph:
    """Two branches of each part, that meet: any of them may come first."""
    graph = Graph("branches")
    x = graph.add_input("x", _ROWS)
    left = build(graph, "Exp", [build(graph, "Relu", [x]).output]).output
    right = build(graph, "Neg", [build(graph, "Abs", [x]).output]).output
    graph.add_output("y", build(graph, "Add", [left, right]).output)
    return _serialized(graph, method="unroll_static")


def _part_types(order: Sequence[Op]) -> list[list[str]]:
    phased = [op for op in order if op.settings.batch_phase is not None]
    return [
        [op.op_type for op in ops] for _, ops in groupby(phased, lambda op: op.settings.batch_phase)
    ]


@pytest.mark.parametrize("kind", ["scheduler", "isomorphic", "overlap_on_io", "overlap_on_compute"])
def test_parts_follow_each_other(kind: str) -> None:
    graph = _branches()
    types = _part_types(_scheduled(graph, kind))
    assert len(types) == 3
    if kind != "scheduler":
        assert types[0] == types[1] == types[2]


def test_the_order_is_settled() -> None:
    """Priorities that come later do not change it."""
    graph = _branches()
    order = _scheduled(graph, "isomorphic")
    for op in graph.ops:
        op.settings = replace(op.settings, schedule_priority=float(op.op_type == "Abs"))
    assert build_schedule(graph).orders[graph] == order


def test_disorder_is_found() -> None:
    ops = [
        Op("Relu", [], [], {}, OpSettings(bins=(("parts", number),)), {}) for number in (0, 1, 0)
    ]
    assert find_disorder(ops[:2], "parts") == []
    assert "runs behind" in find_disorder(ops, "parts")[0]


def test_mixed_parts_are_found() -> None:
    graph = _branches()
    one = next(op for op in graph.ops if op.op_type == "Exp" and op.settings.batch_phase == 1)
    other = next(op for op in graph.ops if op.op_type == "Relu" and op.settings.batch_phase == 2)
    graph.set_input(one, 0, other.output)
    assert "of part 1 reads Relu" in find_mixed_parts(graph, 3)[0]
    part = next(op for op in graph.ops if op.op_type == "Slice" and op.settings.batch_phase == 2)
    part.attributes["starts"] = (2, 0)
    assert "begins at 2, not 4" in " ".join(find_mixed_parts(graph, 3))


# -- transfers -------------------------------------------------------------------------------------


def _with_transfers() -> Graph:
    """Each of three parts is loaded, copied in, computed, copied out and stored."""
    graph = Graph("transfers")
    kept: list[Tensor] = []
    for phase in range(3):
        settings = OpSettings(batch_phase=phase)
        on_io = replace(settings, tile_set="io")
        x = graph.add_input(f"x{phase}", _MATRIX)
        loaded = build(graph, "RemoteLoad", [x], settings=on_io).output
        inside = _tile_copy(graph, loaded, "io", "compute", settings)
        for op_type in ("Exp", "Neg"):
            inside = build(graph, op_type, [inside], settings=settings).output
        outside = _tile_copy(graph, inside, "compute", "io", settings)
        kept.append(build(graph, "RemoteStore", [outside], settings=on_io).output)
    for tensor in kept:
        graph.add_output("y", tensor)
    return graph


def _tile_copy(graph: Graph, x: Tensor, source: str, to: str, settings: OpSettings) -> Tensor:
    way = {"source": source, "destination": to}
    return build(graph, "IoTileCopy", [x], dict(way), settings=settings).output


def _numbers(order: Sequence[Op], kind: str, way: str = "") -> list[int]:
    """Where in the order the ops of each part stand."""
    return [
        number
        for number, op in enumerate(order)
        if op.op_type == kind and op.attributes.get("destination", "") == way
    ]


def test_the_next_part_is_copied_in_before_the_current_one_is_copied_out() -> None:
    order = _scheduled(_with_transfers(), "overlap_on_io")
    into, out = (_numbers(order, "IoTileCopy", way) for way in ("compute", "io"))
    assert into[1] < out[0]
    assert into[2] < out[1]


def test_the_next_part_is_loaded_before_the_current_one_is_computed() -> None:
    order = _scheduled(_with_transfers(), "overlap_on_compute")
    loads, computed = _numbers(order, "RemoteLoad"), _numbers(order, "Exp")
    assert loads[1] < computed[0]
    assert loads[2] < computed[1]


@pytest.mark.parametrize("kind", ["overlap_on_io", "overlap_on_compute"])
def test_copies_between_tiles_stand_together(kind: str) -> None:
    """Nothing is computed or transferred between what goes in and what comes out."""
    order = _scheduled(_with_transfers(), kind)
    into, out = (_numbers(order, "IoTileCopy", way) for way in ("compute", "io"))
    assert [into[1], into[2]] == [out[0] - 1, out[1] - 1]
    stores, computed = _numbers(order, "RemoteStore"), _numbers(order, "Exp")
    assert out[0] < stores[0] < out[1]
    assert computed[0] < into[1]


def test_what_a_part_loads_again_stays() -> None:
    """Stored behind the first product, loaded before the last: what is between hides both."""
    graph = Graph("again")
    for phase in range(2):
        settings = OpSettings(batch_phase=phase)
        on_io = replace(settings, tile_set="io")
        x = graph.add_input(f"x{phase}", _MATRIX)
        first = build(graph, "Exp", [x], settings=settings).output
        outside = _tile_copy(graph, first, "compute", "io", settings)
        stored = build(graph, "RemoteStore", [outside], settings=on_io).output
        inside = build(graph, "Neg", [first], settings=settings).output
        loaded = build(graph, "RemoteLoad", [stored], settings=on_io).output
        again = _tile_copy(graph, loaded, "io", "compute", settings)
        graph.add_output("y", build(graph, "Add", [inside, again], settings=settings).output)
    order = [op.op_type for op in _scheduled(graph, "overlap_on_io")]
    assert order[: len(order) // 2] == order[len(order) // 2 :]
    assert order[0] == "Exp"


def test_without_overlap_a_part_is_stored_before_the_next_is_loaded() -> None:
    order = _scheduled(_with_transfers(), "isomorphic")
    loads, stores = _numbers(order, "RemoteLoad"), _numbers(order, "RemoteStore")
    assert stores[0] < loads[1]
    assert stores[1] < loads[2]


@pytest.mark.parametrize("kind", ["isomorphic", "overlap_on_io", "overlap_on_compute"])
def test_what_overlaps_costs_less(kind: str) -> None:
    """Each part is computed beside the load of the next one or the store of the one before."""
    graph = _with_transfers()
    _scheduled(graph, kind)
    schedule = build_schedule(graph)
    target = replace(find_target("ipu2"), num_io_tiles=32)
    report = estimate_costs(graph, schedule, plan_memory(graph, schedule), target)
    computed = sum(op.cycles.total for op in report.ops if op.op_type in ("Exp", "Neg"))
    assert computed > 0
    assert report.hidden == (0 if kind == "isomorphic" else computed)
