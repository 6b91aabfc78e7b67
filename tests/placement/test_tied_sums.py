"""Gradients of weights that several stages of a pipeline read: each stage adds up its own part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.placement.networks import (
    ADAM,
    CLIPPED,
    SGD,
    assert_equal,
    layered,
    plain_program,
    run_program,
)
from tests.training.deep import compiled

_STAGES: Final = {
    "on one chip": [(0, 0), (1, 1), (2, 2), (0, 3)],
    "on two chips": [(0, 0), (1, 1), (2, 2), (3, 3)],
}
_OPTIONS: Final[dict[str, Any]] = {
    "virtual_graph_mode": "manual",
    "num_ipus": 4,
    "enable_pipelining": True,
    "accumulation_factor": 9,
}
_TRAINED: Final = {"sgd": SGD, "adam": ADAM, "clipped": CLIPPED}


@pytest.mark.parametrize("where", list(_STAGES))
@pytest.mark.parametrize("train", list(_TRAINED))
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_results_are_those_of_one_stage_at_a_time(
    where: str, train: str, reduction: str, tmp_path: Path
) -> None:
    model, optimizer = layered(_STAGES[where], tied=True), _TRAINED[train]
    kind: dict[str, Any] = {"accumulation_and_replication_reduction_type": reduction}
    found, interleaved, sequential = (
        run_program(tmp_path, model, optimizer, pipeline_schedule=schedule, **_OPTIONS, **kind)
        for schedule in ("grouped", "interleaved", "sequential")
    )
    assert_equal(found, sequential)
    assert_equal(interleaved, sequential)
    plain = plain_program(tmp_path, model, optimizer, accumulation_factor=9, **kind)
    for name, value in plain[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-5, atol=1e-6)


def test_replicas(tmp_path: Path) -> None:
    model = layered(_STAGES["on one chip"], tied=True)
    found, sequential = (
        run_program(
            tmp_path,
            model,
            SGD,
            pipeline_schedule=schedule,
            replicated_graph_count=2,
            **_OPTIONS,
        )
        for schedule in ("grouped", "sequential")
    )
    assert_equal(found, sequential)


@pytest.mark.parametrize("where", list(_STAGES))
def test_no_gradient_of_a_weight_waits(where: str) -> None:
    graph = compiled(layered(_STAGES[where], tied=True), SGD, **_OPTIONS).graph
    shapes = {tensor.type.shape for tensor in graph.variables}
    rows = [
        op.operand(1).type.shape
        for nested in graph.walk()
        for op in nested.ops
        if op.op_type == "Stash"
    ]
    assert rows
    assert shapes.isdisjoint(rows)
