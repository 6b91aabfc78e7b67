"""Execution phases: which op is in which, what crosses them, and when it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from popc.compiler import Planned
from popc.ir import Graph, Op, StepPart
from popc.reporting.estimation import costs_of
from popc.request import make_options
from popc_runtime.errors import OptionError
from tests.streaming.networks import (
    EVERYTHING,
    MODELS,
    OFF,
    SHARDED,
    assert_same,
    plain_run,
    run,
    training,
    transfers,
)
from tests.support.compiling import planned_model

_TWO: Final[dict[str, Any]] = {
    "execution_phases": 3,
    "virtual_graph_mode": "execution_phases",
    "num_ipus": 2,
}
_ONE: Final[dict[str, Any]] = {
    "execution_phases": 4,
    "virtual_graph_mode": "execution_phases",
    "execution_phase_stages": 1,
}
_ON_DEMAND: Final = {
    f"{kind}_io_schedule": "on_demand" for kind in ("weight", "activation", "accumulator")
}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "ping-pong": _TWO,
    "batch": {**_TWO, "execution_phase_schedule": "batch"},
    "single": _ONE,
    "clustered": {**_ONE, "execution_phase_schedule": "batch_clustered_io"},
    "on demand": {**_ONE, **_ON_DEMAND},
    "early state": {**_ONE, "optimizer_state_io_schedule": "preload"},
}
_PROGRAMS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "loops": {"batches_per_step": 2, "accumulation_factor": 2},
    "replicas": {"replicated_graph_count": 2},
    "recomputed": {"auto_recomputation": "standard", "accumulation_factor": 2},
}


def compiled_network(model: str, train: Any = None, **options: Any) -> Planned:
    """A model with all checks."""
    make, shapes = MODELS[model]
    return planned_model(make(), options, shapes=shapes, train=train)


def _phased(graph: Graph) -> Iterator[tuple[Graph, Op, int]]:
    for part in graph.walk():
        for op in part.ops:
            if op.settings.execution_phase is not None:
                yield part, op, op.settings.execution_phase


@pytest.mark.parametrize("program", _PROGRAMS)
def test_training_stays_the_same(program: str, tmp_path: Path) -> None:
    train = training(momentum=0.9)
    plain = plain_run("transformer", tmp_path, train, **_PROGRAMS[program])
    assert_same(run("transformer", tmp_path, train, **_PROGRAMS[program], **_TWO), plain)


@pytest.mark.parametrize("kind", _KINDS)
def test_training_with_everything_off_chip(kind: str, tmp_path: Path) -> None:
    train = training(momentum=0.9)
    plain = plain_run("transformer", tmp_path, train, **_PROGRAMS["loops"])
    away = run("transformer", tmp_path, train, **_PROGRAMS["loops"], **_KINDS[kind], **EVERYTHING)
    assert_same(away, plain)
    assert away.on_chip < plain.on_chip


def test_divided_weights(tmp_path: Path) -> None:
    train, options = training(type="adam"), {"replicated_graph_count": 2}
    plain = plain_run("mlp", tmp_path, train, **options)
    location = {**SHARDED, **OFF}
    divided = run("mlp", tmp_path, train, **options, **_ONE, weight_tensor_location=location)
    assert_same(divided, plain)


@pytest.mark.parametrize("kind", ["ping-pong", "single"])
def test_inference(kind: str, tmp_path: Path) -> None:
    plain = plain_run("transformer", tmp_path)
    assert_same(run("transformer", tmp_path, **_KINDS[kind]), plain)
    away = run("transformer", tmp_path, **_KINDS[kind], weight_tensor_location=OFF)
    assert_same(away, plain)


@pytest.mark.parametrize("options", [_TWO, _ONE], ids=["two chips", "one chip"])
def test_phases_run_in_order(options: dict[str, Any]) -> None:
    done = compiled_network("transformer", training(), **options, **EVERYTHING)
    order = done.schedule.orders[done.graph]
    phases = [op.settings.execution_phase for op in order]
    assert None not in phases
    assert phases == sorted(phases, key=lambda item: item or 0)
    last = options["execution_phases"] - 1
    assert set(phases) == set(range(2 * last + 1))
    for _, op, phase in _phased(done.graph):
        if op.settings.part is StepPart.FORWARD and op.op_type not in ("RemoteLoad", "IpuCopy"):
            assert phase <= last
        if op.op_type not in ("IpuCopy", "RemoteLoad", "RemoteStore", "CopyVarUpdate"):
            assert op.settings.virtual_graph == phase % options.get("execution_phase_stages", 2)


def test_phases_have_about_equal_weights() -> None:
    done = compiled_network("mlp", training(), **{**_ONE, "execution_phases": 3})
    products = [
        (op.settings.execution_phase, op.operand(1).type.shape)
        for op in done.graph.topological()
        if op.settings.part is StepPart.FORWARD and op.op_type in ("MatMul", "Gemm")
    ]
    # The first bias begins a phase, which the second product would make too large.
    assert products == [(0, (64, 64)), (2, (64, 64)), (2, (64, 10))]


def test_what_is_near_stays_on_the_chip() -> None:
    """Activations of the last phases are not stored; with two chips, of one phase more."""
    stores = {}
    for name, options in (("one", _ONE), ("two", {**_TWO, "execution_phases": 4})):
        done = compiled_network(
            "transformer", training(), **options, activation_tensor_location=OFF
        )
        stored = transfers(done.graph, "RemoteStore")
        stores[name] = sum(len(op.outputs) for op in stored)
        last = options["execution_phases"] - 1
        gap = options.get("execution_phase_stages", 2)
        for op in stored:
            made = op.settings.execution_phase or 0
            users = [user for tensor in op.outputs for user in tensor.uses]
            loads = [user.settings.execution_phase or 0 for user in users]
            assert made < last
            assert min(loads) + 1 - made > gap
    assert 0 < stores["two"] < stores["one"]


def test_when_tensors_are_fetched() -> None:
    for schedule, distance in (("preload", 1), ("on_demand", 0)):
        done = compiled_network(
            "mlp", training(), **_ONE, weight_tensor_location=OFF, weight_io_schedule=schedule
        )
        loads = transfers(done.graph, "RemoteLoad")
        assert loads
        for op in loads:
            own = op.settings.execution_phase or 0
            readers = [user for tensor in op.outputs for user in tensor.uses]
            users = [user.settings.execution_phase or 0 for user in readers]
            assert min(users) - own in ((distance, 0) if own == 0 else (distance,))


def test_what_is_fetched_early_passes_while_others_compute(tmp_path: Path) -> None:
    """On io tiles it costs bytes of the chip and saves cycles; nothing else changes."""
    location = {**OFF, "load_tile_set": "io"}
    options = {**_ONE, "num_io_tiles": 64, "weight_tensor_location": location}
    early = compiled_network("transformer", training(), **options)
    late = compiled_network("transformer", training(), **options, **_ON_DEMAND)
    costs, others = costs_of(early), costs_of(late)
    assert costs.cycles.host < others.cycles.host
    assert costs.cycles.compute == others.cycles.compute
    assert early.plan.peak_bytes >= late.plan.peak_bytes
    for op in transfers(early.graph, "IoTileCopy"):
        source = op.operand(0).producer
        if source is not None and source.op_type == "RemoteLoad":
            readers = [user.settings.execution_phase for user in op.output.uses]
            assert op.settings.execution_phase in readers
    plain = plain_run("transformer", tmp_path, training())
    assert_same(run("transformer", tmp_path, training(), **options), plain)


def test_annotated_phases() -> None:
    rules = [{"nodes": "*", "op_type": "Relu", "execution_phase": 2}]
    done = compiled_network("mlp", training(), **_ONE, annotate=rules)
    after = [
        op.settings.execution_phase
        for op in done.graph.ops
        if op.settings.part is StepPart.FORWARD and op.settings.origin.startswith("fc3")
    ]
    assert all(phase in (2, 3) for phase in after)
    with pytest.raises(OptionError) as caught:
        compiled_network("mlp", training(), **_ONE, annotate=[{**rules[0], "execution_phase": 4}])
    assert "in execution phase 4, but execution_phases is 4" in caught.value.details[0]
    with pytest.raises(OptionError) as caught:
        compiled_network("mlp", training(), **_TWO, annotate=[{**rules[0], "virtual_graph": 1}])
    assert "which runs on chip 0, but on virtual graph 1" in "".join(caught.value.details)
    with pytest.raises(OptionError) as caught:
        compiled_network(
            "mlp", training(), **_TWO, annotate=[{"op_type": "Relu", "virtual_graph": 1}]
        )
    assert "give execution_phase instead" in caught.value.details[0]


def test_mistakes_are_listed_together() -> None:
    with pytest.raises(OptionError) as caught:
        make_options({"execution_phases": 2, "execution_phase_stages": 2})
    text = "\n".join(caught.value.details)
    assert "virtual_graph_mode is off: set virtual_graph_mode=execution_phases" in text
    assert "execution_phase_stages is 2, but num_ipus is 1" in text
    with pytest.raises(OptionError) as caught:
        make_options({"virtual_graph_mode": "execution_phases", "weight_io_schedule": "preload"})
    text = "\n".join(caught.value.details)
    assert "but execution_phases is 0: set it to 2 or more" in text
    assert "weight_io_schedule is about execution phases" in text


def test_options_of_popart() -> None:
    options = make_options(
        {
            "virtualGraphMode": "ExecutionPhases",
            "num_ipus": 2,
            "executionPhaseSettings": {
                "phases": 4,
                "stages": 2,
                "weightIOSchedule": "OnDemand",
                "schedule": "BatchClusteredIO",
            },
        }
    )
    assert options.execution_phases == 4
    assert options.io_schedule("weight") == "on_demand"
    assert options.io_schedule("optimizer_state") == "on_demand"
    assert options.io_schedule("activation") == "preload"
    assert options.execution_phase_schedule == "batch_clustered_io"
