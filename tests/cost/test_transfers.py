"""Transfers with the host: shared syncs, waiting, and what hides behind computing."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import popc
from popc.cost import CostReport
from popc.cost.phases import Cycles
from popc.cost.rules.host import _POLL_SECONDS
from tests.placement.networks import ADAM, layered, on_chips

_BATCHES = 5
_SIDE = 512


def _model(products: int = 1, inputs: int = 2) -> onnx.ModelProto:
    """The sum of some inputs, multiplied by itself some times."""
    floats = TensorProto.FLOAT
    names = [f"x{number}" for number in range(inputs)]
    nodes = [
        helper.make_node("Sum", names, ["p0"]),
        *(
            helper.make_node("MatMul", [f"p{number}", "p0"], [f"p{number + 1}"])
            for number in range(products)
        ),
        helper.make_node("Tanh", [f"p{products}"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, floats, [_SIDE, _SIDE]) for name in names],
        [helper.make_tensor_value_info("y", floats, [_SIDE, _SIDE])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _estimate(model: onnx.ModelProto, **options: Any) -> CostReport:
    return popc.estimate(model, options={"batches_per_step": _BATCHES, **options})


def _syncs(report: CostReport, moved: int) -> int:
    """How many syncs with the host there are, if transfers move so many bytes."""
    target = report.target
    bytes_cycles = moved / target.host_bytes_per_cycle
    return round((report.cycles.host + report.hidden - bytes_cycles) / (
        target.exchange.global_sync_cycles
    ))  # fmt: skip


def test_transfers_in_a_row_share_syncs() -> None:
    model = _model(inputs=3)
    moved = _BATCHES * 4 * 4 * _SIDE**2
    apart = _estimate(model, enable_merge_exchange=False)
    grouped = _estimate(model, group_host_sync=True)
    assert _syncs(apart, moved) == _BATCHES * 2 * 4
    assert _syncs(grouped, moved) == _BATCHES * 2 * 2
    assert grouped.device_cycles == apart.device_cycles


def test_without_prefetch_loads_wait() -> None:
    ready, asked = _estimate(_model()), _estimate(_model(), enable_prefetch_datastreams=False)
    wait = asked.cycles.host - ready.cycles.host
    poll = int(_POLL_SECONDS * ready.target.tile.clock_hz)
    assert wait in (_BATCHES * poll, 2 * _BATCHES * poll)  # the two loads may be merged


def _overlap(products: int, strategy: str = "overlap_loops", **options: Any) -> CostReport:
    streams = {"exchange_strategies": {"*": strategy}}
    return _estimate(_model(products), num_io_tiles=64, **streams, **options)


@pytest.mark.parametrize("products", [0, 200])
def test_the_longer_of_both_counts(products: int) -> None:
    plain = _estimate(_model(products), num_io_tiles=64)
    beside = _overlap(products)
    everything = beside.cycles.host + beside.hidden
    assert 0 < beside.hidden < everything
    first_and_last = everything / _BATCHES  # they stand alone
    if products:  # transfers hide but for those
        assert beside.cycles.host == pytest.approx(first_and_last, rel=0.01)
        assert beside.cycles.total < plain.cycles.total
    else:  # everything that is computed passes meanwhile, but copies between tiles take time too
        copies = sum(op.cycles.total for op in beside.ops if op.op_type == "IoTileCopy")
        assert beside.cycles.total < plain.cycles.total + copies
    assert beside.samples == plain.samples == _BATCHES * _SIDE


def test_hidden_cycles_are_told() -> None:
    report = _overlap(200)
    data = report.to_dict(full=True)
    assert data["hidden_cycles"] == report.hidden == sum(op["hidden"] for op in data["ops"])
    from popc.cost import format_costs

    assert "Hidden host exchange" in format_costs(report)
    assert "Hidden" not in format_costs(_estimate(_model()))


def test_io_tiles_do_not_compute() -> None:
    few = _estimate(_model(20), num_io_tiles=1024)
    assert few.device_cycles > _estimate(_model(20)).device_cycles


def test_a_store_now_and_then_is_charged_now_and_then() -> None:
    often = _estimate(_model(), anchors={"y": "all"}, batches_per_step=6)
    seldom = _estimate(_model(), anchors={"y": "every_n:3"}, batches_per_step=6)
    stores = [
        sum(op.cycles.host for op in report.ops if op.op_type == "HostStore")
        for report in (often, seldom)
    ]
    assert stores[0] == 3 * stores[1]


def test_ops_on_io_tiles_have_only_those() -> None:
    on_io = [{"op_type": "Tanh", "tile_set": "io"}]
    few = _estimate(_model(), num_io_tiles=32, annotate=on_io)
    many = _estimate(_model(), num_io_tiles=1024, annotate=on_io)

    def tanh(report: CostReport) -> int:
        return next(op.cycles.compute for op in report.ops if op.op_type == "Tanh")

    assert tanh(few) > 20 * tanh(many)


def test_memory_of_io_tiles() -> None:
    """They hold two buffers for each stream, and the other tiles none."""
    report = _overlap(1)
    chip, compute = report.memory[0], report.target.compute_tiles
    assert len(chip.peak) == report.target.tiles_per_ipu == compute + 64
    buffer = 4 * _SIDE**2 // 64
    code = min(chip.always_live)
    live = max(chip.peak[compute:]) - code
    assert 6 * buffer <= live <= 8 * buffer
    plain = _estimate(_model(1), num_io_tiles=64).memory[0]
    assert max(plain.peak[compute:]) == min(plain.always_live)


def test_merged_transfers_of_several_chips_take_the_time_of_the_slowest() -> None:
    """Overlapping orders of the updates put those of all chips side by side."""

    def cycles(schedule: str, *, merges: bool = True) -> Cycles:
        options: dict[str, Any] = {
            "accumulation_factor": 4,
            "enable_merge_exchange": merges,
            "enable_pipelining": True,
            "num_ipus": 2,
            "optimizer_state_tensor_location": {"storage": "off_chip"},
            "virtual_graph_mode": "manual",
            "accumulate_outer_fragment_schedule": schedule,
        }
        return popc.estimate(on_chips(4, 2), train=ADAM, options=options).cycles

    serial, overlapping = cycles("serial"), cycles("overlap_cycle_optimized")
    assert overlapping.total < serial.total
    serial = cycles("serial", merges=False)
    overlapping = cycles("overlap_cycle_optimized", merges=False)
    assert overlapping.host == serial.host
    assert overlapping.total <= serial.total  # updates of both are computed between transfers


def test_bytes_bound_what_shares_syncs() -> None:
    """Four loads of a megabyte in a row: all in one exchange, two in each, or none with another."""
    size = _SIDE * _SIDE * 4

    def host(most: int, *, merged: bool = True) -> float:
        options = {
            "group_host_sync": True,
            "enable_merge_exchange": merged,
            "merge_exchange_bytes": most,
        }
        return popc.estimate(_model(inputs=4), options=options).cycles.host

    free, none = host(0), host(0, merged=False)
    assert host(4 * size) == free
    assert host(size) == host(size - 1) == none
    saved = (none - free) // 3  # of three loads that follow another one
    assert host(2 * size) == free + saved


def _phases(stages: int) -> CostReport:
    """Phases on one chip, or on two in turns."""
    options = {
        "execution_phases": 4,
        "execution_phase_stages": stages,
        "num_ipus": stages,
        "virtual_graph_mode": "execution_phases",
        "weight_tensor_location": {"storage": "off_chip"},
    }
    return popc.estimate(layered([None] * 4), train=ADAM, options=options)


def test_a_chip_transfers_while_another_computes() -> None:
    alone, in_turns = _phases(1), _phases(2)
    assert alone.beside.total == 0
    assert in_turns.beside.host > 0
    work = sum(op.cycles.total for op in in_turns.ops)
    assert in_turns.cycles.total == work - in_turns.beside.total
    assert in_turns.to_dict()["beside"]["total"] == in_turns.beside.total


def test_host_loads_hide_nothing() -> None:
    """They need the links that transfers on io tiles wait for."""
    options = {"num_io_tiles": 64, "batches_per_step": _BATCHES}
    streams = {"exchange_strategies": {"x0": "overlap_loops"}}
    one = popc.estimate(_model(0), options={**options, **streams})
    computing = one.cycles.total - one.cycles.host
    assert 0 < one.hidden <= computing
