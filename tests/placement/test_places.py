"""Where ops are put: annotations, what goes beside them, copies, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import popc
from popc.ir import Graph, Op
from popc.placement import ChipsOfValues, find_crossings, main_graphs
from popc.request import make_options
from popc_runtime.errors import OptionError
from tests.placement.networks import SGD, assert_equal, layered, on_chips, run_program
from tests.training.deep import compiled

_MANUAL: dict[str, Any] = {"virtual_graph_mode": "manual", "num_ipus": 4}
_PIPELINED: dict[str, Any] = {**_MANUAL, "enable_pipelining": True}


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    chips=st.lists(st.integers(0, 3), min_size=2, max_size=5),
    skips=st.booleans(),
    tied=st.booleans(),
    trains=st.booleans(),
)
def test_any_placement_gives_the_same_results(
    *, chips: list[int], skips: bool, tied: bool, trains: bool, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("placed")
    model = layered([(chip, None) for chip in chips], skips=skips, tied=tied)
    options: dict[str, Any] = {"accumulation_factor": 2} if trains else {}
    train = SGD if trains else None
    plain = run_program(folder, model, train, **options)
    placed = run_program(folder, model, train, **options, **_MANUAL)
    for found, wanted in zip(placed[0], plain[0], strict=True):
        for name, value in wanted.items():  # what is fused otherwise differs in the last bit
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), min_size=2, max_size=4),
    more=st.integers(0, 3),
    schedule=st.sampled_from(["grouped", "interleaved", "sequential"]),
    skips=st.booleans(),
    recomputation=st.sampled_from(["none", "pipeline", "recompute_all"]),
)
def test_any_pipeline_gives_the_same_results(
    *,
    moves: list[tuple[int, int]],
    more: int,
    schedule: str,
    skips: bool,
    recomputation: str,
    tmp_path_factory: Any,
) -> None:
    folder = tmp_path_factory.mktemp("pipelined")
    chips = [chip for chip, _ in moves]
    if len(set(chips)) == 1:
        chips[0] = (chips[0] + 1) % 4
    places = [
        (chip, stage)
        for stage, (chip, (_, layers)) in enumerate(zip(chips, moves, strict=True))
        for _ in range(layers)
    ]
    model = layered([*places], skips=skips)
    options: dict[str, Any] = {**_PIPELINED, "accumulation_factor": 2 * len(moves) - 1 + more}
    expected = run_program(folder, model, SGD, pipeline_schedule="sequential", **options)
    found = run_program(
        folder,
        model,
        SGD,
        pipeline_schedule=schedule,
        auto_recomputation=recomputation,
        **options,
    )
    assert_equal(found, expected)


def test_ops_are_placed_beside_what_they_work_with() -> None:
    done = compiled(on_chips(4, 4), SGD, accumulation_factor=4, **_MANUAL)
    assert list(find_crossings(done.graph)) == []
    homes = ChipsOfValues(done.graph)
    weights = {variable.name: homes.of(variable) for variable in done.graph.variables}
    assert [weights[f"w{index}"] for index in range(4)] == [0, 1, 2, 3]
    assert [weights[f"Accl___w{index}"] for index in range(4)] == [0, 1, 2, 3]
    copies = [op for op in _ops(done.graph) if op.op_type == "IpuCopy"]
    ways = sorted((op.attributes["source"], op.attributes["destination"]) for op in copies)
    assert ways == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]


def test_a_value_is_copied_once_to_each_chip() -> None:
    model = layered([(0, None), (1, None), (1, None), (2, None)], skips=True)
    done = compiled(model, SGD, **_MANUAL)
    copies = [op for op in _ops(done.graph) if op.op_type == "IpuCopy"]
    keys = [(op.operand(0), op.attributes["destination"]) for op in copies]
    assert len(keys) == len(set(keys))


def test_merged_updates_stay_on_their_chips() -> None:
    done = compiled(on_chips(4, 2), SGD, merge_var_update="all", **_MANUAL)
    homes = ChipsOfValues(done.graph)
    for op in _ops(done.graph):
        assert len({homes.of(operand) for operand in op.present_inputs} - {None}) <= 1, op


def _ops(graph: Graph) -> list[Op]:
    return [op for item in main_graphs(graph) for op in item.ops]


def test_annotations_without_effect_are_noted() -> None:
    model = layered([(0, 0), (1, 1)])
    done = compiled(model, SGD)
    assert done.model is not None
    notes = " ".join(done.model.notes)
    assert "__ipu_number has no effect (virtual_graph_mode is off)" in notes
    assert "__pipeline_stage has no effect (enable_pipelining is false)" in notes
    assert all(op.settings.virtual_graph is None for op in _ops(done.graph))


def test_rules_place_what_the_model_does_not(tmp_path: Path) -> None:
    rules = [
        {"nodes": "*", "virtual_graph": 0, "pipeline_stage": 0},
        {"nodes": "matmul3", "virtual_graph": 1, "pipeline_stage": 1},
        {"nodes": "add4", "virtual_graph": 1, "pipeline_stage": 1},
        {"nodes": "tanh5", "virtual_graph": 1, "pipeline_stage": 1},
        {"nodes": "square", "virtual_graph": 1, "pipeline_stage": 1},
    ]
    model = layered([None, None])
    options: dict[str, Any] = {**_PIPELINED, "batches_per_step": 3}
    plain = run_program(tmp_path, model, batches_per_step=3)
    assert_equal(run_program(tmp_path, model, annotate=rules, **options), plain)


_TWO = [(0, 0), (1, 1)]
_ERRORS: list[tuple[str, list[Any], bool, dict[str, Any], str]] = [
    ("partly", [(0, None), None], False, _MANUAL, "some ops have no __ipu_number: matmul3, add4"),
    ("nowhere", [None], False, _MANUAL, "no op has an __ipu_number"),
    ("beyond", [(0, None), (7, None)], False, _MANUAL, "on virtual graph 7, but num_ipus is 4"),
    ("stages", [(0, 0), (1, None)], True, _PIPELINED, "some ops have no __pipeline_stage"),
    ("spread", [(0, 0), (1, 0)], True, _PIPELINED, "stage 0 is spread over several virtual"),
    ("gap", [(0, 0), (1, 2)], True, _PIPELINED, "there are no ops in pipeline stage 1"),
    ("back", [(0, 1), (1, 0)], True, _PIPELINED, "is computed later, in stage 1"),
    ("inferred", [(1, None), (0, None)], True, _PIPELINED, "is computed later, in stage 1"),
    ("one", [(0, 0), (0, 1)], True, _PIPELINED, "all ops are on one virtual graph"),
    ("stale", [*_TWO], True, {**_PIPELINED, "accumulation_factor": 1}, "accumulation_factor is 1"),
    (
        "short",
        [*_TWO, (2, 2)],
        True,
        {**_PIPELINED, "accumulation_factor": 4},
        "accumulation_factor is 4, but a pipeline of 5 stages, 3 forward and 2 backward takes",
    ),
    (
        "short step",
        [*_TWO, (2, 2)],
        False,
        {**_PIPELINED, "batches_per_step": 2},
        "batches_per_step is 2, but a pipeline of 3 stages takes at least 3",
    ),
]


@pytest.mark.parametrize(
    ("places", "trains", "options", "message"),
    [row[1:] for row in _ERRORS],
    ids=[row[0] for row in _ERRORS],
)
def test_places_that_are_wrong(
    *, places: list[Any], trains: bool, options: dict[str, Any], message: str
) -> None:
    given = {"accumulation_factor": 8, **options} if trains else options
    with pytest.raises(OptionError) as caught:
        popc.compile(layered(places), train=SGD if trains else None, options=given)
    assert message in " ".join(caught.value.details)


_CONFLICTS: list[tuple[dict[str, Any], str]] = [
    ({"enable_pipelining": True, "num_ipus": 2}, "virtual_graph_mode is off"),
    (
        {"enable_pipelining": True, "virtual_graph_mode": "manual"},
        "needs at least two chips, but num_ipus is 1",
    ),
    (
        {"enable_pipelining": True, "virtual_graph_mode": "execution_phases", "num_ipus": 2},
        "choose one of them",
    ),
    ({**_PIPELINED, "default_anchor": "every_n:2", "batches_per_step": 4}, "every_n does not go"),
    ({"pipeline_schedule": "grouped"}, "enable_pipelining is false"),
    ({"accumulate_outer_fragment_schedule": "serial"}, "enable_pipelining is false"),
    ({"auto_recomputation": "pipeline"}, "enable_pipelining is false"),
    (
        {**_PIPELINED, "stash_all_tensors_inference_pipeline": True},
        "auto_recomputation is none: leave",
    ),
    ({"virtual_graph_mode": "auto"}, "num_ipus is 1"),
    ({"virtual_graph_split_ratios": [1, 2]}, "virtual_graph_mode is off"),
    (
        {"virtual_graph_mode": "auto", "num_ipus": 4, "virtual_graph_split_ratios": [1, 2]},
        "has 2 numbers, but num_ipus is 4",
    ),
    (
        {"virtual_graph_mode": "auto", "num_ipus": 2, "virtual_graph_split_ratios": [0, 0]},
        "are all zero",
    ),
    ({"annotate": [{"nodes": "*", "virtual_graph": 1}]}, "virtual_graph would have no effect"),
]


@pytest.mark.parametrize(("given", "message"), _CONFLICTS, ids=str)
def test_options_that_do_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options(given)
    assert message in " ".join(caught.value.details)


def test_all_conflicts_are_told_at_once() -> None:
    given = {"enable_pipelining": True, "virtual_graph_split_ratios": "1,2"}
    with pytest.raises(OptionError) as caught:
        make_options(given)
    assert len(caught.value.details) == 3


def test_popart_s_names() -> None:
    options = make_options(
        {
            "virtualGraphMode": "Auto",
            "num_ipus": 2,
            "enablePipelining": True,
            "virtualGraphSplitRatios": [1, 2],
            "accumulateOuterFragmentSettings": {
                "schedule": "OverlapCycleOptimized",
                "excludedVirtualGraphs": [1],
            },
        }
    )
    assert options.virtual_graph_mode == "auto"
    assert options.virtual_graph_split_ratios == (1.0, 2.0)
    assert options.accumulate_outer_fragment_schedule == "overlap_cycle_optimized"
    assert options.accumulate_outer_fragment_excluded_virtual_graphs == (1,)
