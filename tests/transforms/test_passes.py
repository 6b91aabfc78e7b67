"""Every pass: what it makes of a model, that the results stay the same, when it must not fire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.ir import Graph, format_graph, verify
from popc.transforms import PIPELINE, optional_passes
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc_runtime.format import Array
from tests.random_graphs import interpret
from tests.support import import_graph, run_onnxruntime
from tests.transforms.cases import FIRING, QUIET, Case


def _feeds(model: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        one.name: random.uniform(
            0.1, 3, [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for one in model.graph.input
    }


def _without_output_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Shapes of outputs are left to the runtimes."""
    for one in model.graph.output:
        one.type.tensor_type.ClearField("shape")
    return model


def _graph_of(case: Case) -> Graph:
    graph = import_graph(_without_output_types(case.model))
    for one in case.first:
        one(graph, check=True)
    kept = [
        (name, tensor)
        for name, tensor in zip(graph.output_names, graph.outputs, strict=True)
        if name not in case.unread
    ]
    graph.output_names, graph.outputs = map(list, zip(*kept, strict=True))
    return graph


def _results(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    return interpret(graph, [feeds[tensor.name] for tensor in graph.inputs])


def _assert_close(actual: list[Array], expected: list[Array]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", FIRING, ids=lambda case: case.name)
def test_same_results_before_and_after(case: Case, golden: Callable[[str, str], None]) -> None:
    model = _without_output_types(case.model)
    feeds = _feeds(model)
    expected = run_onnxruntime(model, feeds)[: len(model.graph.output) - len(case.unread)]
    graph = _graph_of(case)
    before = format_graph(graph)
    _assert_close(_results(graph, feeds), expected)
    reports = run_to_fixed_point([case.make()], graph, check=True)
    assert sum(report.changes for report in reports) > 0
    DeadCode()(graph, check=True)
    golden(f"pass_{case.name}", f"before\n\n{before}\nafter\n\n{format_graph(graph)}")
    _assert_close(_results(graph, feeds), expected)


@pytest.mark.parametrize("case", QUIET, ids=lambda case: case.name)
def test_stays_quiet(case: Case) -> None:
    graph = _graph_of(case)
    before = format_graph(graph)
    assert case.make().run(graph) == 0
    assert format_graph(graph) == before
    assert verify(graph) == []


@pytest.mark.parametrize("case", FIRING, ids=lambda case: case.name)
def test_program_does_not_depend_on_the_pass(case: Case, tmp_path: Path) -> None:
    """The whole compiler, with the pass, without it and without any."""
    model = _without_output_types(case.model)
    feeds = _feeds(model)
    expected = run_onnxruntime(model, feeds)
    name = case.make().name
    for disabled in ([], list(optional_passes()), ["dead_code"], [name]):
        if not set(disabled) <= set(optional_passes()):
            continue
        options = {"disabled_passes": disabled, "verify_ir": True}
        path = popc.compile(model, options=options).save(tmp_path / "m.popx", force=True)
        _assert_close(list(popc_runtime.load(path).run(feeds).values()), expected)


def test_every_pass_has_a_fixture() -> None:
    """Host transfers and the step loop, which need streams, are tested in test_pipeline.py.

    What needs a backward pass, or changes how results are rounded, has a file of its own;
    what needs replicas is in tests/replication, what needs chips in tests/placement, what cuts
    batches in tests/transforms/batch, and what moves data in tests/streaming and tests/transfers.
    """
    elsewhere = {"fuse_loss_gradients", "host_io", "main_loops", "partials_type", "round_results"}
    elsewhere |= {"distribute_batch_norm", "merge_collectives", "recomputation"}
    elsewhere |= {"combine_convolutions", "combine_lookups", "combine_products", "inplace_order"}
    elsewhere |= {"serialize_products", "update_priorities", "outlining", "winograd"}
    elsewhere |= {"automatic_placement", "final_placement", "late_placement", "pipelining"}
    elsewhere |= {"outer_fragment", "placement"}
    elsewhere |= {"group_host_sync", "io_tile_copies", "merge_exchange", "overlap_io"}
    elsewhere |= {"streaming_memory"}
    elsewhere |= {"batch_schedule", "batch_serialization", "fill_phases", "sum_parts"}
    passes = {one.name for phase in PIPELINE for one in phase.passes}
    assert passes - {case.make().name for case in FIRING} == elsewhere
    assert passes - {case.make().name for case in QUIET} == elsewhere
