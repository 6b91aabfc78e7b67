"""Random graphs with nested control flow: replicas leave each other alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ops.divergence import find_divergence
from popc.options import Options, StreamMode
from popc.options.table import FrozenTable
from popc_runtime.format import Array
from tests.support.pipeline import Program
from tests.support.random_graphs import interpret
from tests.support.smooth_graphs import smooth_feeds, smooth_graph

_REPLICAS = 3


def _stacked(seed: int) -> dict[str, Array]:
    """Other feeds for each replica."""
    graph = smooth_graph(seed)
    feeds = [smooth_feeds(graph, number) for number in range(_REPLICAS)]
    return {name: np.stack([array[name] for array in feeds]) for name in feeds[0]}


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_each_replica_computes_what_it_would_alone(seed: int) -> None:
    feeds = _stacked(seed)
    options = Options(
        verify_ir=True, replicated_graph_count=_REPLICAS, identical_replica_seeds=True
    )
    together = Program(smooth_graph(seed), options).run(feeds)
    alone = Program(smooth_graph(seed))
    for number in range(_REPLICAS):
        expected = alone.run({name: array[number] for name, array in feeds.items()})
        for name, value in expected.items():
            np.testing.assert_array_equal(together[name][number], value)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), chosen=st.integers(0, 255))
def test_what_is_said_to_be_equal_is_equal(seed: int, chosen: int) -> None:
    """Some inputs are equal on all replicas: so must be all that the analysis does not name."""
    graph = smooth_graph(seed)
    equal = [operand for index, operand in enumerate(graph.inputs) if chosen >> index & 1]
    differing = find_divergence(graph, _REPLICAS, equal).tensors
    graph.outputs = [tensor for op in graph.topological() for tensor in op.outputs]
    graph.output_names = [tensor.name for tensor in graph.outputs]
    same = smooth_feeds(graph, 0)
    results = []
    for number in range(_REPLICAS):
        own = smooth_feeds(graph, number)
        feeds = [
            same[operand.name] if operand in equal else own[operand.name]
            for operand in graph.inputs
        ]
        results.append(interpret(graph, feeds))
    for tensor, *values in zip(graph.outputs, *results, strict=True):
        if tensor not in differing:
            for value in values[1:]:
                np.testing.assert_array_equal(value, values[0])


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_broadcast_inputs_make_equal_results(seed: int) -> None:
    feeds = {name: array[0] for name, array in _stacked(seed).items()}
    modes = FrozenTable(dict.fromkeys(feeds, StreamMode.BROADCAST))
    options = Options(
        replicated_graph_count=_REPLICAS,
        replicated_stream_mode=modes,
        identical_replica_seeds=True,
    )
    together = Program(smooth_graph(seed), options).run(feeds)
    alone = Program(smooth_graph(seed)).run(feeds)
    for name, value in alone.items():
        for own in together[name]:
            np.testing.assert_array_equal(own, value)
