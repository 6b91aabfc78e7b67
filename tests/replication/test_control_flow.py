"""Replicas that go different ways, and the places where they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc.ir import Graph, TensorType
from popc.ops.build import build
from popc.ops.divergence import find_divergence
from popc_runtime.errors import DeviceError, ModelError
from popc_runtime.format import DType
from tests.replication.models import compiled, graphcore


def _branch(first: str, condition: str = "c") -> str:
    """x where the condition holds: what ``first`` makes of it, else -x."""
    return (
        f"y = If ({condition}) <then_branch = t () => (float[2] a) {{ {first} }}, "
        "else_branch = e () => (float[2] b) { b = Neg (x) }>"
    )


def _model(body: str) -> Any:
    return graphcore(f"g (float[2] x, bool c) => (float[2] y) {{ {body} }}")


_X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_replica_takes_its_own_branch(threads: int, tmp_path: Path) -> None:
    program = compiled(
        _model(_branch("a = Exp (x)")), tmp_path, threads=threads, replicated_graph_count=3
    )
    condition = np.array([True, False, True])
    found = program.run({"x": _X, "c": condition})["y"]
    np.testing.assert_allclose(found, np.where(condition[:, None], np.exp(_X), -_X), rtol=1e-6)


def test_each_replica_makes_its_own_number_of_iterations(tmp_path: Path) -> None:
    body = (
        "y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) "
        "{ d = Identity (c) t = Add (s, x) }>"
    )
    model = graphcore(f"g (float[2] x, int64 n) => (float[2] y) {{ {body} }}")
    program = compiled(model, tmp_path, replicated_graph_count=3, batches_per_step=2)
    count = np.array([[0, 1, 5], [2, 2, 0]])
    x = np.stack([_X, 2 * _X])
    found = program.run({"x": x, "n": count})["y"]
    np.testing.assert_allclose(found, x * (1 + count[..., None]))


@pytest.mark.parametrize(
    "decider",
    ["d = Identity (c)", "d0 = Cast <to = 1> (c) d1 = Neg (d0) d = Cast <to = 9> (d1)"],
)
def test_an_exchange_in_a_branch_that_some_may_take_is_refused(
    decider: str, tmp_path: Path
) -> None:
    body = f"{decider} {_branch('a = ai.graphcore.CrossReplicaSum (x)', 'd')}"
    with pytest.raises(ModelError, match="may never reach an exchange") as caught:
        compiled(_model(body), tmp_path, replicated_graph_count=3)
    assert "ReplicatedAllReduce" in caught.value.details[0]
    assert "AssumeEqualAcrossReplicas" in caught.value.hint


def test_a_condition_that_all_share_may_decide_about_an_exchange(tmp_path: Path) -> None:
    body = _branch("a = ai.graphcore.CrossReplicaSum (x)")
    program = compiled(
        _model(body),
        tmp_path,
        replicated_graph_count=3,
        replicated_stream_mode={"c": "broadcast"},
    )
    for condition in (True, False):
        found = program.run({"x": _X, "c": np.array(condition)})["y"]
        np.testing.assert_array_equal(found, [_X.sum(axis=0)] * 3 if condition else -_X)


def test_a_reduced_condition_may_decide_about_an_exchange(tmp_path: Path) -> None:
    """A loop goes on until the largest of all replicas' numbers is reached."""
    body = (
        "m = ReduceMax <keepdims = 0> (x) "
        'g = ai.graphcore.ReplicatedAllReduce <"__collectiveOperator" = 4> (m) '
        "y = Loop (, c, x) <body = b (int64 i, bool k, float[2] s) => (bool d, float[2] t) "
        "{ a = ai.graphcore.CrossReplicaSum (s) t = Add (s, a) p = ReduceMax <keepdims = 0> (a) "
        "d = Less (p, limit) }>"
    )
    text = f"g (float[2] x, bool c) => (float[2] y) <float limit = {{100.0}}> {{ {body} }}"
    program = compiled(
        graphcore(text.replace('"__collectiveOperator"', "__collectiveOperator")),
        tmp_path,
        replicated_graph_count=2,
        replicated_stream_mode={"c": "broadcast"},
    )
    state = _X[:2].copy()
    while True:
        total = state.sum(axis=0)
        state = state + total
        if not total.max() < 100:
            break
    found = program.run({"x": _X[:2], "c": np.asarray(1, np.bool_)})["y"]
    np.testing.assert_array_equal(found, state)


def test_a_wrong_assumption_is_found_when_replicas_meet(tmp_path: Path) -> None:
    body = "d = ai.graphcore.AssumeEqualAcrossReplicas (c) " + _branch(
        "a = ai.graphcore.CrossReplicaSum (x)", "d"
    )
    program = compiled(_model(body), tmp_path, replicated_graph_count=3)
    equal = program.run({"x": _X, "c": np.ones(3, np.bool_)})["y"]
    np.testing.assert_array_equal(equal, [_X.sum(axis=0)] * 3)
    with pytest.raises(DeviceError, match="must be the same on all of them"):
        program.run({"x": _X, "c": np.array([True, True, False])})


def test_output_in_a_branch_of_the_step_loop(tmp_path: Path) -> None:
    """Every n-th value is stored in a branch: all replicas take it together."""
    program = compiled(
        graphcore("g (float[2] x) => (float[2] y) { y = Neg (x) }"),
        tmp_path,
        replicated_graph_count=3,
        batches_per_step=4,
        anchors={"y": "every_n:2"},
    )
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    np.testing.assert_array_equal(program.run({"x": x})["y"], -x[1::2])


# -- what may differ -------------------------------------------------------------------------------


def test_what_differs() -> None:
    graph = Graph("main")
    x, shared = (graph.add_input(name, TensorType(DType.FLOAT32, (4,))) for name in ("x", "s"))
    whole = {"op": "add", "size": 4, "stride": 1}
    half = {"op": "add", "size": 2, "stride": 1}

    def emit(op_type: str, *operands: Any, **attributes: Any) -> Any:
        return build(graph, op_type, operands, attributes).output

    differs = {
        "x": x,
        "index": emit("ReplicaIndex"),
        "half": emit("ReplicatedAllReduce", x, **half),
        "local": emit("ReplicatedAllReduce", x, **{**whole, "op": "local"}),
        "part": emit("ReplicatedReduceScatter", shared, **whole),
        "exchanged": emit("AllToAll", shared, size=4, stride=1),
        "mixed": emit("Add", x, shared),
        "random": emit("RandomNormal", shape=(2,), to="float32", mean=0.0, scale=1.0),
    }
    equal = {
        "shared": shared,
        "whole": emit("ReplicatedAllReduce", x, **whole),
        "gathered": emit("ReplicatedAllGather", x, size=4, stride=1),
        "sent": emit("ReplicatedBroadcast", x, size=4, stride=1, root=0),
        "half of equal": emit("ReplicatedAllReduce", shared, **half),
        "assumed": emit("AssumeEqualAcrossReplicas", x),
        "computed": emit("Neg", shared),
    }
    found = find_divergence(graph, 4, [shared]).tensors
    assert {name for name, tensor in differs.items() if tensor not in found} == set()
    assert {name for name, tensor in equal.items() if tensor in found} == set()


@pytest.mark.parametrize(
    ("given", "others", "stride", "is_equal"),
    [("s", 2, 2, True), ("s", 2, 1, False), ("s", 1, 2, False), ("x", 2, 2, False)],
)
def test_parts_that_groups_gather(given: str, others: int, stride: int, *, is_equal: bool) -> None:
    """Equal if all groups hold parts of the same, divided in one way, and gather them."""
    graph = Graph("main")
    x, shared = (graph.add_input(name, TensorType(DType.FLOAT32, (4,))) for name in ("x", "s"))

    def part(tensor: Any, stride: int) -> Any:
        attributes: Any = {"op": "local", "size": 2, "stride": stride}
        return build(graph, "ReplicatedReduceScatter", [tensor], attributes).output

    parts = [part({"x": x, "s": shared}[given], 2), part(shared, others)]
    both = build(graph, "Add", parts).output
    whole = build(graph, "ReplicatedAllGather", [both], {"size": 2, "stride": stride}).output
    found = find_divergence(graph, 4, [shared]).tensors
    assert both in found
    assert (whole in found) is not is_equal


def test_states_of_loops_differ_if_any_iteration_makes_them_so() -> None:
    """a takes on b, b takes on c, and c differs: after three iterations, all may."""
    graph, body = Graph("main"), Graph("body")
    scalar = TensorType(DType.FLOAT32, ())
    shared, own = graph.add_input("shared", scalar), graph.add_input("own", scalar)
    body.add_input("i", TensorType(DType.INT64, ()))
    condition = body.add_input("c", TensorType(DType.BOOL, ()))
    states = [body.add_input(name, scalar) for name in "abc"]
    for name, tensor in zip("cdef", (condition, states[1], states[2], states[2]), strict=True):
        body.add_output(name, tensor)
    loop = graph.add_op(
        "Loop",
        [None, None, shared, shared, own],
        [scalar] * 3,
        {"states": 3, "trip_count": 5, "conditional": 0},
        subgraphs={"body": body},
    )
    divergence = find_divergence(graph, 2, [shared])
    assert divergence.tensors.issuperset(loop.outputs)
    assert not divergence.ops


def test_random_branches_are_no_place_to_meet(tmp_path: Path) -> None:
    body = "u = RandomUniform <shape = [1]> () v = Squeeze (u) h = Less (v, half) " + _branch(
        "a = ai.graphcore.CrossReplicaSum (x)", "h"
    )
    model = graphcore(f"g (float[2] x) => (float[2] y) <float half = {{0.5}}> {{ {body} }}")
    with pytest.raises(ModelError, match="may never reach an exchange"):
        compiled(model, tmp_path, replicated_graph_count=2)
