"""Every cycle of a pipeline calls what the loop calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Any, TypeAlias

import pytest

from popc.compiler import Planned, compile_program
from popc.cost import Categories
from popc.ops.control import callee_of
from popc.ops.main_loops import PIPELINE
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest
from samples.networks import sorting_transformer

_Cycle: TypeAlias = tuple[bool, int | None]  # in the loop, and the number of the step

_LOSS = {"type": "cross_entropy", "input": "logits", "label": "digits"}
_PIPELINE = {
    "target": "bow",
    "virtual_graph_mode": "auto",
    "num_ipus": 2,
    "enable_pipelining": True,
    "accumulation_factor": 6,
}


@cache
def _planned(**options: Any) -> Planned:
    request = CompileRequest.of(
        sorting_transformer(length=4, size=16, heads=2, layers=4),
        options={**_PIPELINE, **options},
        dims={"batch": 3},
        train={"loss": _LOSS, "optimizer": {"type": "adam", "learning_rate": 0.01}},
    )
    return compile_program(request, request.load()).planned


@pytest.mark.parametrize("recomputation", [{}, {"auto_recomputation": "pipeline"}], ids=str)
def test_stages_are_the_same_calls_in_every_cycle(recomputation: dict[str, str]) -> None:
    planned = _planned(enable_outlining=True, **recomputation)
    calls: dict[int, dict[_Cycle, Counter[object]]] = defaultdict(lambda: defaultdict(Counter))
    for graph in planned.graph.walk():
        for op in graph.ops:
            callee, stage = callee_of(op), op.settings.pipeline_stage
            if stage is not None:
                bins = dict(op.settings.bins)
                cycle = graph.name == PIPELINE, bins.get(PIPELINE)
                calls[stage][cycle][callee or op.op_type] += 1
    for stage, cycles in calls.items():
        wanted = cycles[True, 0]
        assert any(not isinstance(called, str) for called in wanted)
        for (_, number), found in cycles.items():
            if number is not None and number % 2 == 0:
                assert found == wanted, (stage, number)


def test_code_is_no_more_than_without() -> None:
    plain, outlined = (costs_of(_planned(enable_outlining=chosen)) for chosen in (False, True))
    for before, after in zip(plain.memory, outlined.memory, strict=True):
        assert _code(after.average) < _code(before.average)


def _code(tile: Categories) -> int:
    return tile.exchange_code + tile.control_code + tile.vertex_state
