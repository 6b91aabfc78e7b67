"""Transfers as ops: memory, order, merging, checkers, costs and the archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popc
import popc_runtime
from popc.compiler import Planned
from popc.ir import Graph, OpSettings, TensorType, VariableRole
from popc.memory import MemoryPlan, check_plan, plan_memory
from popc.ops.build import build
from popc.ops.streaming import find_remote
from popc.options import Options
from popc.reporting.estimation import check_target, costs_of
from popc.request import CompileRequest, make_options
from popc.schedule import Schedule, build_schedule, check_schedule
from popc.transforms.streaming import MergeExchange
from popc.transforms.streaming.check import find_misplaced
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import DType, Region, decode_program, encode_program, oldest_reader
from tests.streaming.networks import EVERYTHING, MODELS, OFF, run, training, transfers
from tests.streaming.test_phases import compiled_network
from tests.support.arena import Arena
from tests.support.compiling import compiled_model

_ROW = TensorType(DType.FLOAT32, (16,))


def _counting() -> Graph:
    """A variable off chip to which x is added twice, by way of streaming memory."""
    graph = Graph("main")
    x = graph.add_input("x", _ROW)
    total = graph.add_variable("total", _ROW, VariableRole.WEIGHT)
    total.off_chip = True
    old = build(graph, "RemoteLoad", [total]).output
    once = build(graph, "Add", [old, x]).output
    stored = build(graph, "RemoteStore", [once]).output
    again = build(graph, "RemoteLoad", [stored]).output
    twice = build(graph, "Add", [again, x]).output
    graph.add_output("y", twice)
    kept = build(graph, "RemoteStore", [twice]).output
    build(graph, "CopyVarUpdate", [total, kept])
    return graph


def _planned(graph: Graph) -> tuple[Schedule, MemoryPlan]:
    schedule = build_schedule(graph, Options())
    assert check_schedule(graph, schedule) == []
    plan = plan_memory(graph, schedule)
    assert check_plan(graph, schedule, plan) == []
    return schedule, plan


def test_a_variable_is_updated_where_it_lies() -> None:
    graph = _counting()
    schedule, plan = _planned(graph)
    assert plan.remote_bytes == 128
    assert plan.state_bytes == 0
    by_name = {tensor.name: place for tensor, place in plan.placements.items()}
    assert by_name["RemoteStore_1"] == by_name["total"]
    assert find_remote(graph) == {
        graph.tensors[n] for n in ("total", "RemoteStore", "RemoteStore_1")
    }
    arena = Arena(graph, schedule, plan)
    x = np.arange(16, dtype=np.float32)
    assert [arena.run([x])[0].tolist() for _ in range(3)] == [
        (2 * n * x).tolist() for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("name", "region", "found"),
    [
        ("total", Region.STATE, "is kept off chip, but does not lie in streaming memory"),
        ("RemoteStore", Region.ARENA, "leaves %RemoteStore"),
        ("Add", Region.REMOTE, "but no RemoteStore has put it there"),
        ("RemoteLoad", Region.REMOTE, "which lies in streaming memory"),
    ],
)
def test_the_checker_of_plans_sees_what_is_misplaced(name: str, region: Region, found: str) -> None:
    graph = _counting()
    schedule, plan = _planned(graph)
    tensor = graph.tensors[name]
    places = {**plan.placements, tensor: replace(plan.placements[tensor], region=region, offset=0)}
    wrong = replace(plan, placements=places, state_bytes=64, arena_bytes=512)
    assert found in "\n".join(check_plan(graph, schedule, wrong))


def test_the_checker_of_graphs_sees_who_does_not_fetch() -> None:
    graph = _counting()
    assert find_misplaced(graph) == []
    build(graph, "Neg", [graph.tensors["total"]])
    build(graph, "RemoteLoad", [graph.tensors["x"]])
    build(graph, "CopyVarUpdate", [graph.tensors["total"], graph.tensors["Add"]])
    problems = "\n".join(find_misplaced(graph))
    assert "Neg(Neg) reads %total" in problems
    assert "fetches %x: float32[16], which is on the chip" in problems
    assert "copies between chip and streaming memory" in problems


def test_a_transfer_moves_something() -> None:
    graph = Graph("main")
    with pytest.raises(ModelError, match="needs at least one tensor"):
        build(graph, "RemoteLoad", [])


def test_neighbours_become_one_exchange() -> None:
    graph = Graph("main")
    x = graph.add_input("x", _ROW)
    stored = [build(graph, "RemoteStore", [x]).output for _ in range(3)]
    loaded = [build(graph, "RemoteLoad", [item]).output for item in stored]
    graph.add_output("y", build(graph, "Sum", loaded).output)
    assert MergeExchange().run(graph) == 4
    merged = transfers(graph)
    assert [len(op.outputs) for op in merged] == [3, 3]
    assert [result.name for result in merged[1].outputs] == [item.name for item in loaded]
    schedule, plan = _planned(graph)
    values = np.arange(16, dtype=np.float32)
    np.testing.assert_array_equal(Arena(graph, schedule, plan).run([values])[0], 3 * values)


@pytest.mark.parametrize(
    ("chips", "merged"), [((1, 1, 1), 2), ((1, 0, 1), 0), ((1, None, None), 0)]
)
def test_transfers_of_other_chips_stay_apart(chips: tuple[int | None, ...], merged: int) -> None:
    """What is not placed yet may turn out to be of any chip."""
    graph = Graph("main")
    x = graph.add_input("x", _ROW)
    for number, chip in enumerate(chips):
        settings = OpSettings(virtual_graph=chip)
        stored = build(graph, "RemoteStore", [x], settings=settings).output
        graph.add_output(f"y{number}", stored)
    assert MergeExchange().run(graph) == merged


def test_merged_exchanges_take_less_time() -> None:
    merged = compiled_network("mlp", training(), **EVERYTHING)
    apart = compiled_network("mlp", training(), **EVERYTHING, enable_merge_exchange=False)
    assert len(transfers(merged.graph)) < len(transfers(apart.graph))
    assert _host_cycles(merged) < _host_cycles(apart)


def _host_cycles(planned: Planned) -> int:
    plain = replace(planned.program, request=planned.program.request.with_options(make_options()))
    return costs_of(replace(planned, program=plain)).cycles.host


def test_what_is_off_chip_is_on_no_tile() -> None:
    plain = compiled_network("transformer", training(type="adam"))
    away = compiled_network("transformer", training(type="adam"), **EVERYTHING)
    before, after = (costs_of(program).memory[0] for program in (plain, away))
    assert after.average.variables < 0.2 * before.average.variables
    assert _host_cycles(away) > _host_cycles(plain)


def test_targets_without_streaming_memory_are_refused() -> None:
    options = make_options({"target": "ipu1", "weight_tensor_location": OFF})
    with pytest.raises(OptionError, match="has no streaming memory"):
        check_target(options)


def test_archives_say_which_readers_they_need(tmp_path: Path) -> None:
    make, shapes = MODELS["mlp"]
    plain = compiled_model(make(), shapes=shapes, train=training()).image
    away = compiled_model(make(), EVERYTHING, shapes=shapes, train=training()).image
    assert (oldest_reader(plain), oldest_reader(away)) == (0, 1)
    assert decode_program(encode_program(away)) == away
    archive = popc.compile(make(), shapes=shapes, train=training(), options=EVERYTHING)
    program = popc_runtime.load(archive.save(tmp_path / "m.popx"))
    assert all(spec.off_chip for spec in program.manifest.variables if np.prod(spec.shape) > 1)


def test_options_say_what_they_changed() -> None:
    from popc.study.effects import explain_options

    make, shapes = MODELS["mlp"]
    options = {**EVERYTHING, "enable_merge_exchange": False}
    request = CompileRequest.of(make(), shapes=shapes, train=training(), options=options)
    effects = explain_options(request)
    found = {effect.option: effect for effect in effects}
    weights = next(got for name, got in found.items() if name.startswith("weight_tensor_location"))
    assert weights.after["remote bytes"] > weights.before["remote bytes"]
    sums = next(got for name, got in found.items() if name.startswith("accumulator"))
    assert sums.none


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_programs_see_what_was_stored_last(data: st.DataObject) -> None:
    """Chains of sums through streaming memory, against a plain evaluation."""
    graph, values = Graph("main"), dict[Any, Any]()
    x = graph.add_input("x", _ROW)
    state = graph.add_variable("state", _ROW, VariableRole.WEIGHT)
    state.off_chip = True
    sample = np.arange(16, dtype=np.float32)
    values[x] = sample
    remote, chip = [state], [x]
    values[state] = np.zeros(16, np.float32)
    for _ in range(data.draw(st.integers(2, 14))):
        kind = data.draw(st.sampled_from(["load", "store", "add", "add"]))
        if kind == "load":
            source = data.draw(st.sampled_from(remote))
            new = build(graph, "RemoteLoad", [source]).output
            values[new] = values[source]
            chip.append(new)
        elif kind == "store":
            source = data.draw(st.sampled_from(chip))
            new = build(graph, "RemoteStore", [source]).output
            values[new] = values[source]
            remote.append(new)
        else:
            pair = [data.draw(st.sampled_from(chip)) for _ in range(2)]
            new = build(graph, "Add", pair).output
            values[new] = values[pair[0]] + values[pair[1]]
            chip.append(new)
    last = build(graph, "Add", [chip[-1], x]).output
    values[last] = values[chip[-1]] + sample
    graph.add_output("y", last)
    stored = build(graph, "RemoteStore", [last]).output
    build(graph, "CopyVarUpdate", [state, stored])
    if data.draw(st.booleans()):
        MergeExchange().run(graph)
    schedule, plan = _planned(graph)
    arena = Arena(graph, schedule, plan)
    np.testing.assert_array_equal(arena.run([sample])[0], values[last])
    np.testing.assert_array_equal(arena.view(state), values[last])


def test_inference_moves_each_weight_once(tmp_path: Path) -> None:
    done = compiled_network("transformer", None, weight_tensor_location=OFF)
    sources = [tensor for op in transfers(done.graph) for tensor in op.present_inputs]
    assert len(sources) == len(set(sources))
    assert run("transformer", tmp_path, weight_tensor_location=OFF).memory["remote_bytes"] == 0
