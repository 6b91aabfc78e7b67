"""Passes on small models: the results are those of onnxruntime, with the pass and without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.ir import Graph
from popc.transforms import optional_passes
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc_runtime.format import Array
from tests.support.oracles import import_graph, run_onnxruntime
from tests.support.random_graphs import interpret
from tests.transforms.cases import FIRING, Case


def _feeds(model: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        declared.name: random.uniform(
            0.1, 3, [dim.dim_value for dim in declared.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for declared in model.graph.input
    }


def _without_output_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Shapes of outputs are left to the runtimes."""
    for declared in model.graph.output:
        declared.type.tensor_type.ClearField("shape")
    return model


def _graph_of(case: Case) -> Graph:
    graph = import_graph(_without_output_types(case.model))
    for item in case.first:
        item(graph, check=True)
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
def test_same_results_as_another_runtime(case: Case) -> None:
    model = _without_output_types(case.model)
    feeds = _feeds(model)
    expected = run_onnxruntime(model, feeds)[: len(model.graph.output) - len(case.unread)]
    graph = _graph_of(case)
    _assert_close(_results(graph, feeds), expected)
    reports = run_to_fixed_point([case.make()], graph, check=True)
    assert sum(report.changes for report in reports) > 0
    DeadCode()(graph, check=True)
    _assert_close(_results(graph, feeds), expected)


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
