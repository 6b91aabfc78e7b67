"""Exchange between replicas, against numpy on the stacked operands of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import AttributeMap, Graph, TensorType
from popc.ops.build import build
from popc.options import Options
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from tests.support.pipeline import Program

# Groups by name: kinds of groups of 4 replicas, as lists of members.
_GROUPS: Final[dict[str, tuple[AttributeMap, list[list[int]]]]] = {
    "all": ({"size": 4, "stride": 1}, [[0, 1, 2, 3]]),
    "consecutive": ({"size": 2, "stride": 1}, [[0, 1], [2, 3]]),
    "orthogonal": ({"size": 2, "stride": 2}, [[0, 2], [1, 3]]),
    "single": ({"size": 1, "stride": 1}, [[0], [1], [2], [3]]),
}
_REDUCE: Final[dict[str, Callable[[Array], Array]]] = {
    "add": lambda rows: rows.sum(axis=0),
    "mean": lambda rows: rows.mean(axis=0),
    "mul": lambda rows: rows.prod(axis=0),
    "min": lambda rows: rows.min(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "square_add": lambda rows: (rows * rows).sum(axis=0),
    "logical_and": np.logical_and.reduce,
    "logical_or": np.logical_or.reduce,
}


def _run(op_type: str, x: Array, attributes: AttributeMap, *, between: bool = True) -> Array:
    """The results of an op on all replicas; ``x`` has a row for each.

    ``between``: in the middle of other ops, so that its operand and result can share memory.
    """
    graph = Graph("main")
    dtype = DType.of(x.dtype)
    value = graph.add_input("x", TensorType(dtype, x.shape[1:]))
    flip = between and dtype is not DType.BOOL
    if flip:
        value = build(graph, "Neg", [value]).output
        value = build(graph, "Neg", [value]).output
    value = build(graph, op_type, [value], attributes).output
    if flip:
        value = build(graph, "Neg", [value]).output
        value = build(graph, "Neg", [value]).output
    graph.add_output("y", value)
    options = Options(verify_ir=True, replicated_graph_count=len(x))
    return Program(graph, options).run({"x": x})["y"]


def _operand(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype) == np.bool_:
        return rng.random(shape) < 0.7
    return np.asarray(rng.integers(-4, 5, shape)).astype(dtype)


def _expected(x: Array, groups: list[list[int]], left: Callable[[Array, int], Array]) -> Array:
    """What each replica gets; ``left`` is given the rows of its group and its place there."""
    results: list[Array] = [np.empty(0)] * len(x)
    for group in groups:
        for place, replica in enumerate(group):
            results[replica] = left(x[group], place)
    return np.stack(results)


@pytest.mark.parametrize("kind", _GROUPS)
@pytest.mark.parametrize("op", _REDUCE)
def test_all_reduce(op: str, kind: str) -> None:
    attributes, groups = _GROUPS[kind]
    x = _operand((4, 3, 5), np.bool_ if op.startswith("logical") else np.float32)
    y = _run("ReplicatedAllReduce", x, {"op": op, **attributes})
    np.testing.assert_array_equal(y, _expected(x, groups, lambda rows, _: _REDUCE[op](rows)))
    assert y.dtype == x.dtype


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64, np.uint8])
def test_all_reduce_of_element_types(dtype: Any) -> None:
    x = _operand((4, 300), dtype)
    y = _run("ReplicatedAllReduce", x, {"op": "add", "size": 4, "stride": 1}, between=False)
    expected = x.astype(np.float64).sum(axis=0) if x.dtype.kind == "f" else x.sum(0, dtype=dtype)
    np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


@pytest.mark.parametrize("op", ["add", "mean", "square_add", "max"])
def test_narrow_floats_are_rounded_once(op: str) -> None:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((3, 100)).astype(np.float32)
    for narrow in (np.float16, ml_dtypes.bfloat16):
        x = wide.astype(narrow)
        graph = Graph("main")
        dtype = DType.FLOAT16 if narrow is np.float16 else DType.BFLOAT16
        value = graph.add_input("x", TensorType(dtype, (100,)))
        attributes: AttributeMap = {"op": op, "size": 3, "stride": 1}
        result = build(graph, "ReplicatedAllReduce", [value], attributes).output
        graph.add_output("y", result)
        feeds = {"x": x if narrow is np.float16 else x.view(np.uint16)}
        y = Program(graph, Options(replicated_graph_count=3)).run(feeds)["y"]
        expected = _REDUCE[op](x.astype(np.float32)).astype(narrow)
        found = y.view(narrow).astype(np.float32)
        np.testing.assert_allclose(found, [expected.astype(np.float32)] * 3, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "consecutive", "orthogonal"])
@pytest.mark.parametrize("shape", [(3,), (8,), (2, 5), (1,), ()])
@pytest.mark.parametrize("op", ["add", "max", "local"])
def test_reduce_scatter(op: str, shape: tuple[int, ...], kind: str) -> None:
    attributes, groups = _GROUPS[kind]
    x = _operand((4, *shape))

    def part(rows: Array, place: int) -> Array:
        own = rows[place] if op == "local" else _REDUCE[op](rows)
        size = -(-own.size // len(rows))
        padded = np.zeros(size * len(rows), own.dtype)
        padded[: own.size] = own.reshape(-1)
        return padded[place * size : (place + 1) * size]

    y = _run("ReplicatedReduceScatter", x, {"op": op, **attributes})
    np.testing.assert_array_equal(y, _expected(x, groups, part))


@pytest.mark.parametrize("kind", _GROUPS)
def test_moves(kind: str) -> None:
    attributes, groups = _GROUPS[kind]
    size = len(groups[0])
    x = _operand((4, size, 3))
    gathered = _run("ReplicatedAllGather", x, attributes)
    np.testing.assert_array_equal(gathered, _expected(x, groups, lambda rows, _: rows))
    exchanged = _run("AllToAll", x, attributes)
    np.testing.assert_array_equal(exchanged, _expected(x, groups, lambda rows, i: rows[:, i]))
    root = size - 1
    sent = _run("ReplicatedBroadcast", x, {**attributes, "root": root})
    np.testing.assert_array_equal(sent, _expected(x, groups, lambda rows, _: rows[root]))


def test_local_reduction_leaves_everything_in_place() -> None:
    x = _operand((2, 3, 2))
    y = _run("ReplicatedAllReduce", x, {"op": "local", "size": 2, "stride": 1})
    np.testing.assert_array_equal(y, x)


@settings(max_examples=15, deadline=None)
@given(
    replicas=st.sampled_from([2, 3, 4, 6]),
    shape=st.lists(st.integers(0, 4), max_size=3),
    data=st.data(),
)
def test_scatter_and_gather_are_an_all_reduce(
    replicas: int, shape: list[int], data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from([number for number in (1, 2, 3, 6) if replicas % number == 0]))
    stride = data.draw(st.sampled_from([1, replicas // size]))
    group: AttributeMap = {"size": size, "stride": stride}
    x = _operand((replicas, *shape))
    parts = _run("ReplicatedReduceScatter", x, {"op": "add", **group})
    whole = _run("ReplicatedAllGather", parts, group).reshape(replicas, -1)
    expected = _run("ReplicatedAllReduce", x, {"op": "add", **group})
    count = int(np.prod(shape))
    np.testing.assert_array_equal(whole[:, :count].reshape(expected.shape), expected)


def test_replica_index() -> None:
    graph = Graph("main")
    graph.add_output("y", build(graph, "ReplicaIndex", []).output)
    y = Program(graph, Options(replicated_graph_count=3)).run({})["y"]
    np.testing.assert_array_equal(y, [0, 1, 2])


@pytest.mark.parametrize(
    ("op_type", "shape", "attributes", "words"),
    [
        ("ReplicatedAllReduce", (2,), {"op": "sum", "size": 2, "stride": 1}, "expected one of add"),
        ("ReplicatedAllReduce", (2,), {"op": "logical_or", "size": 2, "stride": 1}, "not allowed"),
        ("ReplicatedAllReduce", (2,), {"op": "add", "size": 0, "stride": 1}, "no groups of 0"),
        ("AllToAll", (3,), {"size": 2, "stride": 1}, "2 replicas exchange as many rows"),
        ("ReplicatedBroadcast", (3,), {"size": 2, "stride": 1, "root": 2}, "no member 2"),
    ],
)
def test_mistakes(
    op_type: str, shape: tuple[int, ...], attributes: AttributeMap, words: str
) -> None:
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, shape))
    with pytest.raises(ModelError, match=words):
        build(graph, op_type, [x], attributes)
