"""What a report says adds up, and agrees with a naive walk over the schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import popc
from popc.cost import CostReport, Cycles, Phase, estimate_costs, format_costs
from popc.cost.mapping import device_bytes, linear_mapping
from popc.ir import Graph, Tensor
from popc.memory import plan_memory
from popc.placement import insert_copies
from popc.schedule import build_schedule
from popc.target import configure_target, find_target
from popc_runtime.format import ArchiveFile, DType
from samples.networks import digits_cnn, digits_mlp, sorting_transformer
from tests.support.compiling import bindings_of
from tests.support.models import affine, counter_loop
from tests.support.oracles import import_graph

_TARGET = find_target("ipu2")


def _estimated(graph: Graph, tiles: int = 1472, *, inplace: bool = False) -> CostReport:
    schedule = build_schedule(graph)
    target = configure_target(_TARGET, tiles_per_ipu=tiles)
    return estimate_costs(graph, schedule, plan_memory(graph, schedule, inplace=inplace), target)


def test_cycles_add_up() -> None:
    report = popc.estimate(digits_cnn(), dims={"batch": 4})
    total = Cycles()
    for op in report.ops:
        phases = Cycles()
        for phase in op.phases:
            phases = phases + phase.cycles(report.target)
        assert op.cycles == phases * op.times
        total = total + op.cycles
    assert report.cycles == total
    cycles = report.cycles
    parts = cycles.compute + cycles.exchange + cycles.sync + cycles.launch + cycles.host
    assert cycles.total == parts
    assert report.device_cycles == cycles.total - cycles.host
    assert report.samples == 4
    assert report.throughput == pytest.approx(4 / report.seconds)


def test_phases_cost_what_they_are_made_of() -> None:
    phase = Phase("x", compute=100, exchange=40, exchanges=2, launches=3)
    assert phase.cycles(_TARGET) == Cycles(100, 40 + 2 * 237, 2 * 150, 3 * 105)
    assert phase.times(3).cycles(_TARGET) == phase.cycles(_TARGET) * 3


def test_permanent_bytes_are_those_of_weights() -> None:
    graph = import_graph(digits_cnn(), bindings_of(digits_cnn(), dims={"batch": 2}))
    report = _estimated(graph, tiles=40)
    (chip,) = report.memory
    read = {id(t.data): t for op in graph.ops for t in op.present_inputs if t.is_constant}
    weights = sum(t.type.size * device_bytes(t.type.dtype) for t in read.values())
    alike = chip.busiest.stack + chip.busiest.gaps
    assert sum(chip.always_live) == weights + sum(chip.code) + 40 * alike


def _naive_activations(graph: Graph) -> list[int]:
    """Bytes that are live at each step if nothing shares memory: read off the order of ops."""
    order = build_schedule(graph).orders[graph]
    outputs = set(graph.outputs)
    result: list[int] = []
    for index in range(len(order)):
        live: list[Tensor] = []
        for tensor in (t for op in order[: index + 1] for t in op.outputs):
            later = any(tensor in op.present_inputs for op in order[index:])
            born = tensor in order[index].outputs
            if born or later or tensor in outputs:
                live.append(tensor)
        result.append(sum(t.type.size * device_bytes(t.type.dtype) for t in live))
    return result


def _branching(size: int) -> Graph:
    """Four elementwise ops of which no two results share memory."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "a"], ["y"]),
    ]
    shape = [size, 7]
    model = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return import_graph(helper.make_model(model, opset_imports=[helper.make_opsetid("", 20)]))


@pytest.mark.parametrize("size", [1, 50, 5000])
def test_the_liveness_curve_is_that_of_a_naive_walk(size: int) -> None:
    graph = _branching(size)
    report = _estimated(graph, tiles=30)
    inputs = sum(t.type.nbytes for t in graph.inputs)
    naive = _naive_activations(graph)
    curve = [step.activations for step in report.memory[0].steps]
    # A graph input is live as long as it is read; the naive walk knows results only.
    assert [one - two for one, two in zip(curve, naive, strict=True)] in (
        [inputs, inputs, inputs, inputs],
        [inputs, 0, 0, 0],
        [0, 0, 0, 0],
    )


def test_peak_is_the_highest_step() -> None:
    report = popc.estimate(sorting_transformer(), dims={"batch": 8})
    (chip,) = report.memory
    assert chip.peak_bytes == max(step.busiest for step in chip.steps)
    assert chip.steps[chip.peak_step].busiest == chip.peak_bytes
    assert chip.busiest.total == chip.peak_bytes
    assert chip.fits
    assert chip.tiles_over == 0


def test_chips_hold_what_they_run() -> None:
    graph = _branching(5000)
    schedule = build_schedule(graph)
    plan = plan_memory(graph, schedule, inplace=False)
    target = configure_target(_TARGET, num_ipus=2, tiles_per_ipu=30)
    alone = estimate_costs(graph, schedule, plan, target)
    for op in graph.ops:
        number = int(op.op_type in {"Add", "Mul"})
        op.settings = replace(op.settings, virtual_graph=number)
    insert_copies(graph, boundaries=False)
    schedule = build_schedule(graph)
    plan = plan_memory(graph, schedule, inplace=False)
    split = estimate_costs(graph, schedule, plan, target)
    chips = {(op.op_type, op.ipu) for op in split.ops}
    assert chips >= {("IpuCopy", 0), ("Add", 1), ("Mul", 1)}
    assert len(split.memory) == 2
    links = [phase.name for op in split.ops for phase in op.phases].count("links")
    assert links == 2  # a, which sum and product read, and b
    assert split.device_cycles > alone.device_cycles
    peaks = [chip.peak_bytes for chip in split.memory]
    buffer = linear_mapping(7 * 5000, DType.FLOAT32, 30).busiest  # of what is on its way
    assert max(step.temporary for step in split.memory[0].steps) == buffer
    assert max(peaks) <= alone.memory[0].peak_bytes
    assert alone.memory[1].steps[0].activations == 0


def test_only_ops_of_a_full_chip_are_planned_for_less_memory() -> None:
    """A chip that holds too much says nothing about products on another one."""
    found = []
    for held in (1_000, 4_850_000):
        text = f"""<ir_version: 8, opset_import: ["": 17]>
        m (float[1024, 1024] x, float[1024, 1024] w, float[1] h)
            => (float[1024, 1024] y, float[{held}] z) {{
            z = Add(h, table)
            y = MatMul(x, w)
        }}"""
        model = parser.parse_model(text)
        table = numpy_helper.from_array(np.ones(held, np.float32), "table")
        model.graph.initializer.append(table)
        graph = import_graph(model)
        for op in graph.ops:
            op.settings = replace(op.settings, virtual_graph=int(op.op_type == "MatMul"))
        schedule = build_schedule(graph)
        target = configure_target(_TARGET, num_ipus=2, tiles_per_ipu=30)
        plan = plan_memory(graph, schedule, inplace=False)
        found.append(estimate_costs(graph, schedule, plan, target))
    small, large = found
    assert [chip.fits for chip in large.memory] == [False, True]
    plans = [[op.plans for op in report.ops if op.op_type == "MatMul"] for report in found]
    assert plans[0] == plans[1]
    assert small.fits


def test_sharing_memory_saves_some() -> None:
    graph = _branching(5000)
    apart, shared = (_estimated(graph, 30, inplace=flag).memory[0] for flag in (False, True))
    assert shared.peak_bytes < apart.peak_bytes


def test_what_does_not_fit_says_so() -> None:
    options = {"tiles_per_ipu": 2}
    model = sorting_transformer(size=256, layers=8)
    report = popc.estimate(model, dims={"batch": 64}, options=options)
    assert not report.fits
    assert report.memory[0].tiles_over == 2
    assert "DOES NOT FIT" in format_costs(report)


def test_less_proportion_means_less_temporary_memory() -> None:
    reports = [
        popc.estimate(
            digits_cnn(),
            dims={"batch": 256},
            options={"tiles_per_ipu": 16, "available_memory_proportion": number},
        )
        for number in (0.6, 0.02)
    ]
    wide, narrow = (max(op.temporary_bytes for op in report.ops if op.plans) for report in reports)
    assert narrow < wide


def test_loops_count_as_often_as_they_run() -> None:
    once = popc.estimate(affine(4))
    many = popc.estimate(affine(4), options={"batches_per_step": 5})
    kind = next(op for op in once.ops if op.op_type == "HostLoad")
    inside = next(op for op in many.ops if op.op_type == "HostLoad")
    assert inside.times == 5
    assert inside.cycles == kind.cycles * 5
    assert many.samples == 5 * once.samples


def test_unknown_numbers_of_iterations_are_told() -> None:
    report = popc.estimate(counter_loop())
    assert len(report.assumed) == 1
    assert "One iteration assumed" in format_costs(report)


def test_training_steps_can_be_estimated() -> None:
    train = {
        "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    plain = popc.estimate(digits_cnn(), dims={"batch": 8})
    trained = popc.estimate(digits_cnn(), dims={"batch": 8}, train=train)
    assert trained.device_cycles > 2 * plain.device_cycles


_STAGES: Final = {
    "num_ipus": 2,
    "virtual_graph_mode": "auto",
    "enable_pipelining": True,
    "accumulation_factor": 8,
}


@pytest.mark.parametrize(
    ("optimizer", "options", "copies"),
    [
        ({}, {}, 1),
        ({"momentum": 0.9}, {}, 2),
        (
            {"momentum": 0.9},
            {"accumulation_factor": 4, "enable_gradient_accumulation": True},
            2,
        ),
        ({}, {"accumulation_factor": 4}, 1),  # zeros, with which sums begin, are not kept
        ({}, _STAGES, 1),
    ],
    ids=["sgd", "momentum", "accumulation", "sums", "pipeline"],
)
def test_new_values_lie_in_the_memory_of_variables(
    optimizer: dict[str, float], options: dict[str, Any], copies: int
) -> None:
    """What lies there for good is weights and momenta, whatever ops and loops call them."""
    report = popc.estimate(
        digits_mlp(),
        dims={"batch": 16},
        loss={"type": "cross_entropy", "input": "logits", "label": "label"},
        optimizer={"type": "sgd", "learning_rate": 0.1, **optimizer},
        options=options,
    )
    weights = 4 * (64 * 256 + 256 * 256 + 256 * 10)
    held = sum(chip.average.variables for chip in report.memory) * _TARGET.tile.count
    assert copies * weights <= held <= 1.02 * copies * weights + 50_000
    assert all(chip.steps[-1].activations < 0.1 * weights for chip in report.memory)


def test_the_same_every_time() -> None:
    first, second = (
        json.dumps(popc.estimate(digits_cnn(), dims={"batch": 4}).to_dict(full=True))
        for _ in range(2)
    )
    assert first == second


def test_a_report_can_be_part_of_an_archive(tmp_path: Any) -> None:
    archive = popc.compile(affine(4), options={"cost_report": True})
    archive.save(tmp_path / "a.popx")
    with ArchiveFile.open(tmp_path / "a.popx") as file:
        report = json.loads(file.read("report"))
    assert report == json.loads(json.dumps(popc.estimate(affine(4)).to_dict(full=True)))
    plain = popc.compile(affine(4))
    plain.save(tmp_path / "b.popx")
    with ArchiveFile.open(tmp_path / "b.popx") as file:
        assert "report" not in file.blobs


def test_a_faster_clock_takes_less_time() -> None:
    slow, fast = (
        popc.estimate(digits_cnn(), dims={"batch": 4}, options={"target": word})
        for word in ("ipu2", "bow")
    )
    assert fast.device_cycles == slow.device_cycles
    assert fast.seconds < slow.seconds


def test_mapped_tensors_hold_their_bytes() -> None:
    graph = _branching(100)
    for tensor in graph.tensors.values():
        mapping = linear_mapping(tensor.type.size, tensor.type.dtype, 30)
        assert int(np.sum(mapping.by_tile())) == tensor.type.nbytes


def test_bad_targets_are_refused_when_compiling(tmp_path: Any) -> None:
    onnx.save(affine(4), tmp_path / "m.onnx")
    with pytest.raises(popc.errors.OptionError, match="no target"):
        popc.compile(tmp_path / "m.onnx", options={"target": "gpu"})


@pytest.mark.parametrize("order", ["auto", "zigzag", "snake", "hoof"])
def test_copies_cost_the_links_on_their_way(order: str) -> None:
    head = '<ir_version: 10, opset_import: ["": 17]>'
    nodes = "{ [a] h = Exp (x) [b] y = Softmax (h) }"
    model = parser.parse_model(f"{head} g (float[8,4] x) => (float[8,4] y) {nodes}")

    def cycles(last: int) -> int:
        places = [{"nodes": "a", "virtual_graph": 0}, {"nodes": "b", "virtual_graph": last}]
        options = {"num_ipus": 8, "virtual_graph_mode": "manual", "annotate": places}
        return popc.estimate(
            model, options={**options, "ipu_selection_order": order}
        ).cycles.exchange

    near = cycles(1)
    extra = [cycles(last) - near for last in (3, 7)]
    # Hops beyond those to chip 1, which is linked to chip 0 in any order; 15 ns are 20 cycles.
    hops = {"auto": (0, 2), "zigzag": (1, 3), "snake": (0, 2), "hoof": (2, 0)}[order]
    assert [(cycles + 10) // 20 for cycles in extra] == [*hops]
