"""Check gradients of whole graphs, control flow included, against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.autodiff.copying import copy_graph
from popc.ir import Graph, Tensor, verify
from popc.options import Options
from popc.transforms import optional_passes
from popc_runtime.format import Array
from tests.support.pipeline import Program

__all__ = ["check_graph_gradients", "derived_graph", "with_gradients"]

_STEP: Final = 1e-6
_DIRECTIONS: Final = 4


def with_gradients(graph: Graph, weights: Mapping[str, Array]) -> list[Tensor]:
    """Make the gradients of the float inputs outputs too, as ``d_`` and the name of the input.

    The loss is the inner product of the outputs with ``weights``.  Returns the inputs that
    influence it.
    """
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    seeds: dict[Tensor, Tensor] = {}
    for name, tensor in outputs:
        total = weights[name] + (seeds[tensor].data if tensor in seeds else 0)
        seeds[tensor] = graph.add_constant("seed", tensor.type, np.asarray(total))
    inputs = [tensor for tensor in graph.inputs if tensor.type.dtype.is_float]
    found = differentiate(graph, seeds, inputs)
    for tensor, grad in found.items():
        assert grad.type == tensor.type
        graph.add_output(f"d_{tensor.name}", grad)
    assert verify(graph) == []
    return list(found)


def derived_graph(graph: Graph) -> Graph:
    """``graph`` with the gradients of a fixed loss as its only outputs."""
    rng = np.random.default_rng(2)
    count = len(graph.outputs)
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    with_gradients(
        graph, {name: np.asarray(rng.uniform(-1, 1, t.type.shape)) for name, t in outputs}
    )
    graph.outputs = graph.outputs[count:]
    graph.output_names = [f"y{index}" for index in range(len(graph.outputs))]
    return graph


def check_graph_gradients(
    graph: Graph, feeds: Mapping[str, Array], *, tolerance: float = 1e-6
) -> None:
    """The gradients of ``graph`` (on float64), as compiled with and without optional passes.

    Outputs must not change by the backward pass.  Random numbers are the same in every run.
    """
    rng = np.random.default_rng(1)
    forward = Program(copy_graph(graph).graph)
    values = forward.run(feeds)
    weights = {name: np.asarray(rng.uniform(-1, 1, y.shape)) for name, y in values.items()}

    def loss(changed: Mapping[str, Array]) -> float:
        outputs = forward.run({**feeds, **changed})
        return sum(float((outputs[name] * weights[name]).sum()) for name in outputs)

    floats = {name: x for name, x in feeds.items() if x.dtype.kind == "f"}
    directions = [
        {name: np.asarray(rng.standard_normal(x.shape)) for name, x in floats.items()}
        for _ in range(_DIRECTIONS)
    ]
    slopes = [_slope(loss, floats, direction) for direction in directions]
    with_gradients(graph, weights)
    plain = Program(copy_graph(graph).graph, Options(disabled_passes=optional_passes()))
    for results in (plain.run(feeds), Program(graph).run(feeds)):
        for name, value in values.items():
            np.testing.assert_allclose(results[name], value, rtol=1e-12, atol=1e-12)
        for direction, slope in zip(directions, slopes, strict=True):
            parts = [results[f"d_{n}"] * d for n, d in direction.items() if f"d_{n}" in results]
            scale = sum(float(np.abs(part).sum()) for part in parts)
            total = sum(float(part.sum()) for part in parts)
            assert total == pytest.approx(slope, abs=tolerance * max(scale, 1.0))


def _slope(
    loss: Callable[[Mapping[str, Array]], float],
    point: Mapping[str, Array],
    direction: Mapping[str, Array],
) -> float:
    """The slope of ``loss`` along ``direction``, by central differences."""
    up, down = (
        loss({name: x + sign * _STEP * direction[name] for name, x in point.items()})
        for sign in (1, -1)
    )
    return (up - down) / (2 * _STEP)
