"""Random graphs with nested control flow have the gradients that finite differences say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import ModelError
from tests.support.graph_gradients import check_graph_gradients, derived_graph
from tests.support.smooth_graphs import smooth_feeds, smooth_graph


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_random_graphs(seed: int) -> None:
    graph = smooth_graph(seed)
    check_graph_gradients(graph, smooth_feeds(graph))


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_second_derivatives(seed: int) -> None:
    """The backward pass is a graph like any other, loops that go backwards included."""
    graph = smooth_graph(seed, most_ops=5)
    try:
        check_graph_gradients(derived_graph(graph), smooth_feeds(graph), tolerance=1e-5)
    except ModelError as error:
        assert "is itself a gradient" in error.message  # noqa: PT017 - of some ops it is refused
