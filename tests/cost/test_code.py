"""Bytes that are not data: where code lies, how much there is, and what gives way to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popc
from popc.cost import CostReport, LiveStep, MemoryReport, Phase, estimate
from popc.cost.code import measure_code
from popc.cost.codesize import BASE, CodeUse, sizes_of
from popc.cost.report import Categories, Regions
from popc.ir import Graph, OpSettings, TensorType
from popc.ops.build import build
from popc.options import FrozenTable, Options
from popc.reporting.estimation import require_fit
from popc.study.advice.diagnosis import diagnose
from popc.study.advice.trial import outcome_of
from popc.target import configure_target, find_target
from popc_runtime.errors import DoesNotFitError
from popc_runtime.format import DType, Origin
from samples.networks import digits_mlp
from tests.support.models import affine

_TARGET = find_target("ipu2")
_SMALL = configure_target(_TARGET, tiles_per_ipu=8)
_PRODUCT = Phase("convolve", exchanges=1, launches=1, vertex="Conv amp", sources=20)
_SUMS = Phase("reduce", exchanges=1, launches=1, vertex="ReduceAdd", sources=3)
_BOTH = _PRODUCT, _SUMS


@pytest.mark.parametrize(
    ("use", "name", "bytes_"),
    [
        # poplin's vertex has 28 bytes; its work list, of six workers, is a constant.
        (CodeUse((_PRODUCT,), 8), "vertex_state", 28),
        (CodeUse((_PRODUCT,), 8), "vertex_fields", 6 * 3 * 2),
        # The profile of BERT has 24 bytes of control code for a step.
        (CodeUse(_BOTH, 8), "control_code", 2 * 24),
        (CodeUse((_SUMS,), 8), "vertex_fields", 3 * 4),
        (CodeUse((_SUMS,), 8), "vector_descriptors", 8),
        # 4 bytes each: 4 instructions of a phase, one for each source, and what a tile sends: once
        # for a product, whose receivers all listen; else as often as it has sources, at most 8.
        (CodeUse((_PRODUCT,), 8), "exchange_code", 4 * (4 + 20 + 1)),
        (CodeUse((_SUMS,), 8), "exchange_code", 4 * (4 + 3 + 3)),
        (CodeUse((replace(_SUMS, sources=20),), 8), "exchange_code", 4 * (4 + 20 + 8)),
        (CodeUse(_BOTH, 8, known=True, weights=frozenset({0})), "exchange_code", 4 * (4 + 10 + 1)),
        (CodeUse(_BOTH, 8, known=True), "exchange_code", 0),
    ],
)  # fmt: skip
def test_sizes_of_an_op(use: CodeUse, name: str, bytes_: int) -> None:
    assert sizes_of(use, _TARGET)[name] == bytes_


def test_code_lies_on_the_tiles_that_use_it() -> None:
    uses = [CodeUse((_PRODUCT,), 3), CodeUse((_PRODUCT,), 3), CodeUse((_SUMS,), 3)]
    code = measure_code(Graph("main"), uses, _SMALL)
    base = BASE["vertex_code"]
    assert code["vertex_state"].tolist() == [28 + 16, 28, 28, 28, 28, 28, 16, 16]
    conv, sums = 1_760, 670
    kinds = [conv + sums, *[conv] * 5, sums, sums]
    assert (code["vertex_code"] - base).tolist() == kinds


def _layers(count: int) -> onnx.ModelProto:
    half = TensorProto.FLOAT16
    weights = [helper.make_tensor(f"w{i}", half, [64, 64], [0] * 4096) for i in range(count)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(name, half, [8, 64]) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_each_op_has_code_but_kinds_of_vertices_are_there_once() -> None:
    few, many = (popc.estimate(_layers(count)).memory[0] for count in (6, 12))
    assert few.busiest.vertex_code == many.busiest.vertex_code
    for name in ("vertex_state", "control_code", "exchange_code"):
        own, others = (getattr(chip.average, name) - BASE.get(name, 0) for chip in (few, many))
        assert 1.2 * own < others <= 2.1 * own, name


def test_a_small_program_takes_what_the_smallest_one_does() -> None:
    """The vendor's user guide tells 4,404 bytes of a tile, for two additions."""
    chip = popc.estimate(affine(4)).memory[0]
    assert sum(chip.peak) / len(chip.peak) == pytest.approx(4_404, rel=0.15)


@pytest.mark.parametrize(
    ("held", "regions"),
    [
        (Categories(vertex_code=1000, variables=5000), Regions(1000, 5000, 0)),
        (Categories(vertex_code=1000, variables=500_000), Regions(75_016, 425_984, 0)),
        (Categories(vertex_code=300_000), Regions(212_992, 0, 87_008)),
        (Categories(variables=700_000), Regions(212_992, 425_984, 61_024)),
    ],
)
def test_regions(held: Categories, regions: Regions) -> None:
    """Code cannot lie in the interleaved region; data can lie in both."""
    assert Regions.of(held, _TARGET.tile) == regions


def test_code_that_overflows_its_region_counts_as_lacking() -> None:
    """A program with room for data does not fit if there is none for code."""
    tile = _TARGET.tile

    def report(**held: int) -> MemoryReport:
        busiest = Categories(**held)
        regions = Regions.of(busiest, tile)
        peak = (busiest.total,)
        return MemoryReport(
            (0,), peak, -1, busiest, busiest, (), tile.memory_bytes, regions=regions
        )

    code, data, room = report(vertex_code=300_000), report(variables=700_000), report(variables=9)
    assert (code.excess, code.fits) == (87_008, False)
    assert (data.excess, data.fits) == (61_024, False)
    assert (room.excess, room.fits) == (9 - tile.memory_bytes, True)
    reports = [
        CostReport(_TARGET, (), chips, 1, 0) for chips in ((room, code), (data, code), (room,))
    ]
    assert [outcome_of(each).excess for each in reports] == [87_008, 87_008, room.excess]
    assert [diagnose(each).fits for each in reports] == [False, False, True]
    step = LiveStep("y", 0, 0, 300_000, 0)
    refused = replace(reports[0], memory=(replace(code, steps=(step,), peak_step=0),))
    options = Options(target="ipu2", origins=FrozenTable({"target": Origin.API}))
    with pytest.raises(DoesNotFitError) as caught:
        require_fit(refused, options)
    assert "87,008 more than it has for code" in caught.value.details[0]


def test_each_chip_has_the_code_of_its_own_transfers() -> None:
    """The sender and the receiver of a copy have code for it, and no third chip."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (4096,)))
    build(graph, "IpuCopy", [x], {"source": 0, "destination": 1})
    build(graph, "HostStore", [x], {"stream": "s"}, settings=OpSettings(virtual_graph=2))
    target = configure_target(_TARGET, num_ipus=4, tiles_per_ipu=8)
    codes = [measure_code(graph, [], target, chip) for chip in range(4)]
    names = "global_exchange", "host_exchange"
    used = [[bool(code[name].any()) for name in names] for code in codes]
    assert used == [[True, False], [True, False], [False, True], [False, False]]


def _lookups() -> onnx.ModelProto:
    """Many rows of a small table, copies of which on all tiles are quick; few of a large one."""
    half, index = TensorProto.FLOAT16, TensorProto.INT64
    tables = {
        "small": np.zeros((32_768, 8), np.float16),
        "large": np.zeros((150_000, 8), np.float16),
    }
    counts = {"small": 16_384, "large": 8}
    nodes = [helper.make_node("Gather", [name, f"i_{name}"], [f"y_{name}"]) for name in tables]
    ins = [helper.make_tensor_value_info(f"i_{name}", index, [counts[name]]) for name in tables]
    outs = [helper.make_tensor_value_info(f"y_{name}", half, [counts[name], 8]) for name in tables]
    weights = [
        helper.make_tensor(name, half, table.shape, table.tobytes(), raw=True)
        for name, table in tables.items()
    ]
    graph = helper.make_graph(nodes, "lookups", ins, outs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _product() -> onnx.ModelProto:
    half = TensorProto.FLOAT16
    weights = helper.make_tensor(
        "w", half, [512, 512], np.zeros(512 * 512, np.float16).tobytes(), raw=True
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, half, [1024, 512]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("make", [_product, _lookups])
def test_ops_are_planned_again_for_what_memory_others_leave(
    make: Callable[[], onnx.ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = popc.estimate(make(), options={"tiles_per_ipu": 8})
    monkeypatch.setattr(estimate, "_PLANNED_AGAIN", 0)
    once = popc.estimate(make(), options={"tiles_per_ipu": 8})
    assert once.plans == again.plans  # however often a problem was planned
    assert (once.fits, again.fits) == (False, True)
    most = [max(op.temporary_bytes for op in report.ops) for report in (once, again)]
    assert most[1] < most[0]


def test_stages_of_a_pipeline_have_code_once() -> None:
    """PopART makes a function of each, which the cycles call that fill and flush it, too."""
    plain = {"num_ipus": 2, "virtual_graph_mode": "auto", "batches_per_step": 8}
    alone, pipelined = (
        popc.estimate(digits_mlp(), dims={"batch": 8}, options={**plain, "enable_pipelining": on})
        for on in (False, True)
    )
    for one, other in zip(alone.memory, pipelined.memory, strict=True):
        for name in ("vertex_state", "exchange_code"):
            own, more = (getattr(chip.average, name) for chip in (one, other))
            assert own <= more <= 1.15 * own + 50, name


def _updates(count: int, *, outlined: bool) -> MemoryReport:
    options = {
        "optimizer_state_tensor_location": {"storage": "off_chip", "min_elements_for_off_chip": 0},
        "enable_outlining": outlined,
    }
    loss = {"type": "l1", "input": f"x{count}"}
    lamb = {"type": "lamb", "learning_rate": 0.01}
    return popc.estimate(_layers(count), options=options, loss=loss, optimizer=lamb).memory[0]


def test_outlined_updates_of_equal_weights_have_code_once() -> None:
    """Their state is in rows of one buffer, and the row an argument of the function."""
    few, many = (_updates(count, outlined=True) for count in (6, 12))
    plain = _updates(12, outlined=False)
    assert 0 < few.busiest.gateway == many.busiest.gateway < plain.busiest.gateway / 10
    assert many.average.vertex_state < 0.6 * plain.average.vertex_state
    assert many.average.control_code < 0.7 * plain.average.control_code
