"""Random graphs give the same results, bit for bit, however their batch is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import Graph
from popc.options import resolve_options
from tests.support.pipeline import run_pipeline
from tests.support.random_graphs import first_state, graphs, interpret, random_feeds

METHODS = ("unroll_static", "unroll_dynamic", "loop")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("schedule", ["scheduler", "isomorphic"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_results_are_the_same(method: str, schedule: str, data: st.DataObject) -> None:
    """Inputs [2, 3] are cut into two parts; small integers make sums exact."""
    graph: Graph = data.draw(graphs(variables=False))
    names = [f"y{index}" for index in range(len(graph.outputs))]
    graph.output_names = list(names)
    inputs = random_feeds(graph, 3)
    feeds = {tensor.name: array for tensor, array in zip(graph.inputs, inputs, strict=True)}
    expected = interpret(graph, inputs, first_state(graph))
    options: dict[str, Any] = {
        "batch_serialization_factor": 2,
        "batch_serialization_axes": {"x_1": 0},
        "batch_serialization_method": method,
        "batch_serialization_batch_schedule": schedule,
        "verify_ir": True,
    }
    found = run_pipeline(graph, feeds, resolve_options(values=options))
    for name, wanted in zip(names, expected, strict=True):
        np.testing.assert_array_equal(found[name], wanted)
