"""What chips and pipelines cost."""

from __future__ import annotations

from typing import Any

from popc.cost import CostReport, format_costs
from popc.reporting.estimation import costs_of
from tests.training.deep import DEEP, compiled


def _costs(**options: Any) -> CostReport:
    chosen: dict[str, Any] = {"accumulation_factor": 16, **options}
    return costs_of(compiled(DEEP["mlp"](), **chosen))


def test_chips_share_the_work() -> None:
    common: dict[str, Any] = {"num_ipus": 2, "virtual_graph_mode": "auto"}
    alone, placed = _costs(), _costs(**common)
    pipelined = _costs(**common, enable_pipelining=True)
    assert placed.pipeline is None
    assert placed.beside.total > 0  # between copies both chips work
    assert placed.cycles.total < alone.cycles.total
    assert {cost.op_type for cost in placed.ops if "links" in _phases(cost)} == {"IpuCopy"}
    pipeline = pipelined.pipeline
    assert pipeline is not None
    assert pipelined.cycles.total < 0.7 * placed.cycles.total
    assert (pipeline.turns, len(pipeline.busy)) == (14, 2)
    assert pipeline.total == pipeline.fill + 14 * pipeline.cycle + pipeline.flush
    assert pipeline.total <= pipelined.cycles.total
    assert 0.5 < pipeline.utilisation <= 1
    assert pipeline.slowest in pipeline.busy
    text = format_costs(pipelined)
    assert f"14 turns of {pipeline.cycle:,}" in text
    assert ": the slowest" in text
    assert pipelined.to_dict()["pipeline"]["turns"] == 14


def _phases(cost: Any) -> list[str]:
    return [phase.name for phase in cost.phases]


def test_schedules_trade_time_for_memory() -> None:
    common: dict[str, Any] = {"num_ipus": 4, "virtual_graph_mode": "auto"}
    grouped, interleaved, sequential = (
        _costs(**common, enable_pipelining=True, pipeline_schedule=schedule)
        for schedule in ("grouped", "interleaved", "sequential")
    )
    assert grouped.cycles.total < interleaved.cycles.total < sequential.cycles.total
    first = [sum(item.memory[0].peak) for item in (grouped, interleaved)]
    assert first[1] < first[0]


def test_each_chip_holds_its_weights() -> None:
    report = _costs(num_ipus=4, virtual_graph_mode="auto")
    held = [sum(chip.always_live) for chip in report.memory]
    assert max(held) < 1.5 * min(held)
