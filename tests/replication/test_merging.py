"""Exchanges that become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import AttributeMap, Graph, Tensor, TensorType, format_graph
from popc.ops.build import build
from popc.options import Options
from popc.schedule import build_schedule
from popc.transforms.merge_collectives import MergeCollectives
from popc_runtime.format import Array, DType
from tests.support.pipeline import Program

_TYPES: Final = ("ReplicatedAllReduce", "ReplicatedAllGather", "ReplicatedReduceScatter")
_OPTIONS: Final = Options(
    verify_ir=True,
    replicated_graph_count=2,
    merge_all_gather_collectives=True,
    merge_all_reduce_collectives=True,
    merge_reduce_scatter_collectives=True,
    prepare_schedule_for_merging_collectives=True,
)
_PLAIN: Final = Options(verify_ir=True, replicated_graph_count=2)


def _exchange(graph: Graph, op_type: str, x: Tensor) -> Tensor:
    attributes: AttributeMap = {"size": 2, "stride": 1}
    if op_type not in ("AllToAll", "ReplicatedAllGather"):
        attributes["op"] = "add"
    return build(graph, op_type, [x], attributes).output


def _three(op_type: str) -> Graph:
    """Two exchanges side by side, one of another kind, and one that needs the first."""
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (2, 3)))
    z = graph.add_input("z", TensorType(DType.FLOAT32, (5,)))
    first, second = _exchange(graph, op_type, x), _exchange(graph, op_type, z)
    graph.add_output("first", first)
    graph.add_output("second", second)
    graph.add_output("other", _exchange(graph, "AllToAll", build(graph, "Neg", [x]).output))
    graph.add_output("later", _exchange(graph, op_type, build(graph, "Neg", [first]).output))
    return graph


def _pass(*, anywhere: bool) -> MergeCollectives:
    return MergeCollectives(
        dict.fromkeys(_TYPES, 0), anywhere, lambda graph: build_schedule(graph).orders
    )


@pytest.mark.parametrize("op_type", _TYPES)
def test_independent_exchanges_are_merged(op_type: str) -> None:
    graph = _three(op_type)
    assert _pass(anywhere=True)(graph, check=True).changes == 1
    assert sum(op.op_type == op_type for op in graph.ops) == 2
    feeds = {"x": _random((2, 2, 3)), "z": _random((2, 5))}
    expected = Program(_three(op_type), _PLAIN).run(feeds)
    found = Program(_three(op_type), _OPTIONS).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_print(golden: Callable[[str, str], None]) -> None:
    graph = _three("ReplicatedAllReduce")
    before = format_graph(graph)
    _pass(anywhere=True)(graph, check=True)
    golden("pass_merge_collectives", f"before\n\n{before}\nafter\n\n{format_graph(graph)}")


def test_only_neighbours_are_merged_unless_brought_together() -> None:
    def separated() -> Graph:
        graph = Graph("main")
        value = graph.add_input("x", TensorType(DType.FLOAT32, (4,)))
        for name in ("a", "b"):
            graph.add_output(name, _exchange(graph, "ReplicatedAllReduce", value))
            value = build(graph, "Exp", [value]).output
        return graph

    for anywhere, merged in ((False, 0), (True, 1)):
        graph = separated()  # exchange, exponential, exchange
        assert _in_given_order(graph, anywhere=anywhere) == merged


def test_views_between_neighbours_do_not_count() -> None:
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (4,)))
    z = graph.add_input("z", TensorType(DType.FLOAT32, (2,)))
    first = _exchange(graph, "ReplicatedAllReduce", x)
    view = build(graph, "Reshape", [first], {"shape": (2, 2)}).output
    graph.add_output("other", _exchange(graph, "ReplicatedAllReduce", z))
    graph.add_output("dependent", _exchange(graph, "ReplicatedAllReduce", view))
    assert _in_given_order(graph, anywhere=False) == 1


def _in_given_order(graph: Graph, *, anywhere: bool) -> int:
    """What is merged when ops run as they have been added."""
    one = MergeCollectives(dict.fromkeys(_TYPES, 0), anywhere, lambda top: {top: top.ops})
    return one(graph, check=True).changes


@pytest.mark.parametrize(
    ("op", "dtype", "stride"), [("max", "float32", 1), ("add", "float64", 1), ("add", "float32", 2)]
)
def test_different_exchanges_stay_apart(op: str, dtype: str, stride: int) -> None:
    graph = Graph("main")
    for name, own, kind, far in (("x", "add", "float32", 1), ("z", op, dtype, stride)):
        value = graph.add_input(name, TensorType(DType(kind), (4,)))
        attributes: AttributeMap = {"op": own, "size": 2, "stride": far}
        graph.add_output(name, build(graph, "ReplicatedAllReduce", [value], attributes).output)
    assert _pass(anywhere=True)(graph, check=True).changes == 0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_results_stay_the_same(data: st.DataObject) -> None:
    """Random graphs of exchanges and what is computed between them."""
    recipe = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([*_TYPES, "Neg", "Add"]), st.integers(0, 9), st.integers(0, 9)
            ),
            min_size=2,
            max_size=10,
        )
    )

    def made() -> Graph:
        graph = Graph("main")
        values = [
            graph.add_input(f"x{index}", TensorType(DType.FLOAT32, shape))
            for index, shape in enumerate([(3,), (3,), (2, 2)])
        ]
        for op_type, first, second in recipe:
            x, other = values[first % len(values)], values[second % len(values)]
            if op_type == "Neg" or (op_type == "Add" and x.type != other.type):
                values.append(build(graph, "Neg", [x]).output)
            elif op_type == "Add":
                values.append(build(graph, "Add", [x, other]).output)
            elif x.type.size < 64:
                values.append(_exchange(graph, op_type, x))
        for index, value in enumerate(values[3:]):
            graph.add_output(f"y{index}", value)
        return graph

    feeds = {f"x{index}": _random((2, *shape)) for index, shape in enumerate([(3,), (3,), (2, 2)])}
    expected = Program(made(), _PLAIN).run(feeds)
    found = Program(made(), _OPTIONS).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def _random(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
