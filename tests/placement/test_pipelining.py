"""Pipelined programs compute what plain ones do, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
from popc.compiler import transform_program
from popc.progress import Stage
from popc.request import CompileRequest
from tests.placement.networks import (
    ADAM,
    CLIPPED,
    SGD,
    assert_equal,
    layered,
    on_chips,
    plain_program,
    run_program,
)
from tests.training.deep import DEEP, TRAIN, deep_mlp

_SCHEDULES = ("grouped", "interleaved", "sequential")


@pytest.mark.parametrize("schedule", _SCHEDULES)
@pytest.mark.parametrize("chips", [pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("train", [SGD, CLIPPED, ADAM], ids=["sgd", "clipped", "adam"])
def test_training(train: dict[str, Any], chips: int, schedule: str, tmp_path: Path) -> None:
    model = on_chips(4, chips)
    plain = plain_program(tmp_path, model, train, accumulation_factor=8)
    placed: dict[str, Any] = {
        "accumulation_factor": 8,
        "virtual_graph_mode": "manual",
        "num_ipus": chips,
    }
    assert_equal(plain_program(tmp_path, model, train, **placed), plain)
    pipelined = run_program(
        tmp_path, model, train, **placed, enable_pipelining=True, pipeline_schedule=schedule
    )
    assert_equal(pipelined, plain)


@pytest.mark.parametrize(
    "more",
    [
        {"batches_per_step": 2},
        {"accumulation_and_replication_reduction_type": "mean"},
        {
            "accumulation_and_replication_reduction_type": "mean",
            "mean_accumulation_and_replication_reduction_strategy": "running",
        },
        {"anchors": {"square": "final"}},
        {"anchors": {"square": "sum", "Gradient___tanh2": "all"}},
        {"merge_var_update": "all"},
        {"replicated_graph_count": 2},
        {"enable_outlining": True},
        {"decompose_grad_sum": True},
        {"accumulate_outer_fragment_schedule": "scheduler"},
        {"accumulate_outer_fragment_excluded_virtual_graphs": [1]},
        {
            "accumulate_outer_fragment_schedule": "overlap_cycle_optimized",
            "optimizer_state_tensor_location": {"storage": "off_chip"},
        },
        {
            "accumulate_outer_fragment_schedule": "overlap_memory_optimized",
            "optimizer_state_tensor_location": {"storage": "off_chip"},
        },
    ],
    ids=str,
)
def test_training_with_other_options(more: dict[str, Any], tmp_path: Path) -> None:
    model = on_chips(4, 2, skips=True)
    plain_options = {key: value for key, value in more.items() if "outer_fragment" not in key}
    plain = plain_program(tmp_path, model, SGD, accumulation_factor=4, **plain_options)
    options: dict[str, Any] = {
        "accumulation_factor": 4,
        "virtual_graph_mode": "manual",
        "num_ipus": 2,
        **more,
    }
    assert_equal(run_program(tmp_path, model, SGD, enable_pipelining=True, **options), plain)


@pytest.mark.parametrize(
    "stages",
    [
        # Two stages of one chip that follow each other run together; others on the way do not.
        [(0, 0), (0, 1), (1, 2), (1, 3)],
        [(0, 0), (1, 1), (0, 2), (1, 3)],
        [(1, 0), (0, 1), (0, 1), (2, 2)],
    ],
    ids=str,
)
def test_stages_are_not_chips(stages: list[tuple[int, int]], tmp_path: Path) -> None:
    """What would be fused into one op, and rounded once, is not if it is of two stages."""
    model = layered([*stages], skips=True, tied=True)
    plain = plain_program(tmp_path, model, SGD, accumulation_factor=9)
    options: dict[str, Any] = {
        "virtual_graph_mode": "manual",
        "num_ipus": 4,
        "enable_pipelining": True,
    }
    options["accumulation_factor"] = 9
    grouped, interleaved, sequential = (
        run_program(tmp_path, model, SGD, pipeline_schedule=schedule, **options)
        for schedule in _SCHEDULES
    )
    assert_equal(grouped, sequential)
    assert_equal(interleaved, sequential)
    for name, value in plain[1].items():
        np.testing.assert_allclose(grouped[1][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("anchor", ["all", "final", "sum"])
@pytest.mark.parametrize("schedule", ["grouped", "sequential"])
def test_inference(schedule: str, anchor: str, tmp_path: Path) -> None:
    model = on_chips(6, 3, skips=True)
    common: dict[str, Any] = {"batches_per_step": 5, "default_anchor": anchor}
    plain = plain_program(tmp_path, model, **common)
    options: dict[str, Any] = {
        "virtual_graph_mode": "manual",
        "num_ipus": 4,
        "enable_pipelining": True,
    }
    options["pipeline_schedule"] = schedule
    assert_equal(run_program(tmp_path, model, **common, **options), plain)


@pytest.mark.parametrize("name", sorted(DEEP))
@pytest.mark.parametrize("recomputation", ["pipeline", "standard"])
def test_deep_networks(name: str, recomputation: str, tmp_path: Path) -> None:
    """Divided automatically; with dropout, running statistics and attention."""
    options: dict[str, Any] = {
        "accumulation_factor": 8,
        "virtual_graph_mode": "auto",
        "num_ipus": 2,
    }
    plain = plain_program(tmp_path, DEEP[name](), TRAIN, **options)
    pipelined = run_program(
        tmp_path,
        DEEP[name](),
        TRAIN,
        enable_pipelining=True,
        auto_recomputation=recomputation,
        **options,
    )
    assert_equal(pipelined, plain)


@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_random_numbers_do_not_depend_on_stages(schedule: str, tmp_path: Path) -> None:
    """Each op has a sequence of its own, however chips and stages are chosen."""
    options: dict[str, Any] = {
        "accumulation_factor": 6,
        "virtual_graph_mode": "manual",
        "num_ipus": 4,
    }
    plain = plain_program(tmp_path, layered([(0, None)] * 3, dropout=True), SGD, **options)
    model = layered([(0, 0), (1, 1), (2, 2)], dropout=True)
    options |= {"enable_pipelining": True, "pipeline_schedule": schedule}
    assert_equal(run_program(tmp_path, model, SGD, **options), plain)


def _stashed(**options: Any) -> dict[str, int]:
    common: dict[str, Any] = {"accumulation_factor": 8, "num_ipus": 4, "enable_pipelining": True}
    options = {"virtual_graph_mode": "auto", **common, **options}
    request = CompileRequest.of(deep_mlp(24), train=TRAIN, options=options)
    passes = transform_program(request, request.load()).passes
    (report,) = (pass_ for pass_ in passes if pass_.name == "pipelining")
    return dict(report.effects)


def test_what_is_stashed() -> None:
    grouped, interleaved = _stashed(), _stashed(pipeline_schedule="interleaved")
    again = _stashed(auto_recomputation="pipeline")
    sequential = _stashed(pipeline_schedule="sequential")
    assert grouped["stages"] == 7
    assert grouped["cycles to fill"] == 6
    assert interleaved["cycles to fill"] == 3
    assert sequential["cycles to fill"] == sequential["bytes stashed"] == 0
    assert interleaved["bytes stashed"] < 0.7 * grouped["bytes stashed"]
    assert again["bytes stashed"] < 0.2 * grouped["bytes stashed"]


def test_stashes_have_popart_s_size() -> None:
    """As many places as there are slots from the stage that computes a value to its last reader."""
    texts: dict[Stage, str] = {}
    popc.compile(
        on_chips(4, 4),
        train=SGD,
        options={
            "accumulation_factor": 8,
            "virtual_graph_mode": "manual",
            "num_ipus": 4,
            "enable_pipelining": True,
        },
        on_artefact=texts.__setitem__,
    )
    lines = texts[Stage.TRANSFORM].splitlines()
    rows = {line.split("%Stashed___")[1].split(" =")[0] for line in lines if "= Stash(" in line}
    sizes = {row.partition(":")[0]: row.split("[")[1].split(",")[0] for row in rows}
    # Layer k is stage k; its gradients are computed in stage 6 - k.
    assert sizes["x"] == "7"
    assert {sizes[name] for name in sizes if name.startswith("tanh2_c1")} <= {"5"}


def test_inference_computes_once_more_what_is_not_stashed(tmp_path: Path) -> None:
    model = layered([(0, 0), (1, 1), (0, 2), (1, 3)], skips=True)
    common: dict[str, Any] = {"batches_per_step": 5, "virtual_graph_mode": "manual", "num_ipus": 2}
    plain = plain_program(tmp_path, model, **common)
    options: dict[str, Any] = {
        **common,
        "enable_pipelining": True,
        "auto_recomputation": "pipeline",
    }
    assert_equal(run_program(tmp_path, model, **options), plain)
    options["stash_all_tensors_inference_pipeline"] = True
    assert_equal(run_program(tmp_path, model, **options), plain)
