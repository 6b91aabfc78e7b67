"""Recurrent layers cost popnn's cells, once a step; the planner's form of products is an option."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from popc.cost import CostReport, estimate_costs
from popc.memory import plan_memory
from popc.schedule import build_schedule
from popc.target import Target, find_target
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model

_TARGET = find_target("ipu2")
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _layer(kind: str, steps: int, hidden: int) -> list[Array | None]:
    gates = _GATES[kind] * hidden
    shapes = (steps, 16, hidden), (1, gates, hidden), (1, gates, hidden)
    return [np.zeros(shape, np.float32) for shape in shapes]


def _costs(
    op_type: str, inputs: list[Array | None], target: Target = _TARGET, **options: Any
) -> CostReport:
    graph = import_graph(
        one_node_model(op_type, inputs, {"hidden_size": options.pop("hidden")}, **options)
    )
    schedule = build_schedule(graph)
    return estimate_costs(graph, schedule, plan_memory(graph, schedule), target)


def _cycles(kind: str, steps: int, hidden: int, target: Target = _TARGET) -> int:
    report = _costs(kind, _layer(kind, steps, hidden), target, hidden=hidden, opset=22)
    return sum(op.cycles.total for op in report.ops if op.op_type == kind)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_each_step_costs_the_same(kind: str) -> None:
    assert _cycles(kind, 12, 64) == 3 * _cycles(kind, 4, 64)


def test_a_step_of_a_gru_has_two_products() -> None:
    report = _costs("GRU", _layer("GRU", 4, 64), hidden=64, opset=22)
    phases = next(op.phases for op in report.ops if op.op_type == "GRU")
    assert [phase.name for phase in phases].count("convolve") == 2
    assert [phase.name for phase in phases if phase.name in {"gates", "non_linear"}] == [
        "gates", "gates", "non_linear", "gates", "gates", "non_linear",
    ]  # fmt: skip


def test_products_may_be_planned_by_columns() -> None:
    """Few rows and many columns: columns are what vertices go along."""
    older = replace(_TARGET, conv=replace(_TARGET.conv, products_by_columns=True))
    assert _cycles("LSTM", 4, 1024, older) < 0.7 * _cycles("LSTM", 4, 1024)


def test_weights_of_bytes_have_costs() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.integers(-9, 9, (1, 4, 16)).astype(np.int8) for _ in range(2)]
    scale, zero = np.full(1, 0.01, np.float32), np.zeros(1, np.int8)
    inputs = [np.zeros((5, 2, 4), np.float32), *weights, *[None] * 5, scale, zero, scale, zero]
    report = _costs(
        "DynamicQuantizeLSTM", inputs, hidden=4, opset=22, domain="com.microsoft",
        constants=(1, 2, 8, 9, 10, 11),
    )  # fmt: skip
    assert report.cycles.total > 0
