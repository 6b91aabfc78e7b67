"""Gradients of exchange, against finite differences of the sum of all replicas' losses."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from popc.autodiff import differentiate
from popc.ir import AttributeMap, Graph, TensorType
from popc.ops.build import build
from popc.options import Options
from popc_runtime.format import Array, DType
from tests.support.pipeline import Program

_STEP: Final = 1e-6
_SHAPE: Final = (2, 3)
_GROUPS: Final[dict[str, AttributeMap]] = {
    "all": {"size": 4, "stride": 1},
    "consecutive": {"size": 2, "stride": 1},
    "orthogonal": {"size": 2, "stride": 2},
}
_OPS: Final = ("add", "mean", "mul", "min", "max", "square_add", "local")
_CASES: Final[dict[str, tuple[str, AttributeMap]]] = {
    **{f"all_reduce_{op}": ("ReplicatedAllReduce", {"op": op}) for op in _OPS},
    **{f"reduce_scatter_{op}": ("ReplicatedReduceScatter", {"op": op}) for op in _OPS},
    "all_gather": ("ReplicatedAllGather", {}),
    "all_to_all": ("AllToAll", {}),
    "broadcast": ("ReplicatedBroadcast", {"root": 1}),
    "assume_equal": ("AssumeEqualAcrossReplicas", {}),
}


def _graph(op_type: str, attributes: AttributeMap, shape: tuple[int, ...]) -> Graph:
    """y = op(sin x), of which each replica has its own."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT64, shape))
    value = build(graph, "Sin", [x]).output
    graph.add_output("y", build(graph, op_type, [value], {**attributes}).output)
    return graph


def _differentiate(graph: Graph) -> None:
    """Add the input ``seed``, the gradient of y, and the output ``gradient``, that of x."""
    x, y = graph.inputs[0], graph.outputs[0]
    seed = graph.add_input("seed", y.type)
    graph.add_output("gradient", differentiate(graph, {y: seed}, [x])[x])
    graph.rename(seed, "seed")


def _program(graph: Graph) -> Program:
    return Program(graph, Options(verify_ir=True, replicated_graph_count=4))


def _slope(program: Program, x: Array, direction: Array, weights: Array) -> float:
    ends = [program.run({"x": x + sign * _STEP * direction})["y"] for sign in (1, -1)]
    return float(((ends[0] - ends[1]) * weights).sum() / (2 * _STEP))


@pytest.mark.parametrize("kind", _GROUPS)
@pytest.mark.parametrize("case", _CASES)
def test_gradient(case: str, kind: str) -> None:
    op_type, own = _CASES[case]
    attributes = {**own, **_GROUPS[kind]}
    shape = (int(str(attributes["size"])), 3) if op_type == "AllToAll" else _SHAPE
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 1.3, (4, *shape))
    if own.get("op") == "mul":
        x[0, 0, 0] = x[3, 1, 1] = 0.0
    forward = _program(_graph(op_type, attributes, shape))
    y = forward.run({"x": x})["y"]
    weights = rng.uniform(-1, 1, y.shape)
    graph = _graph(op_type, attributes, shape)
    _differentiate(graph)
    results = _program(graph).run({"x": x, "seed": weights})
    np.testing.assert_array_equal(results["y"], y)
    for _ in range(3):
        direction = rng.standard_normal(x.shape)
        expected = _slope(forward, x, direction, weights)
        found = float((results["gradient"] * direction).sum())
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_equal_extremes_share_the_gradient() -> None:
    graph = _graph("ReplicatedAllReduce", {"op": "max", "size": 4, "stride": 1}, ())
    _differentiate(graph)
    feeds = {"x": np.array([1.0, 0.5, 1.0, 0.0]), "seed": np.ones(4)}
    found = _program(graph).run(feeds)["gradient"]
    np.testing.assert_allclose(found, [2 * np.cos(1.0), 0, 2 * np.cos(1.0), 0])
