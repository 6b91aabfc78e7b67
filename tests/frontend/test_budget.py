"""Small models that ask for any amount of work are refused, with the node and the option."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.frontend import ImportLimits
from popc_runtime.errors import ModelError, TooMuchWorkError

_FLOAT = TensorProto.FLOAT


def _info(name: str, shape: list[int] | None, kind: int = _FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[Any], constants: dict[str, Any], **more: Any) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [_info("x", [2])], [_info("y", None)], weights)
    opsets = [helper.make_opsetid("", 18), *more.pop("opsets", ())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def _doubling_functions(levels: int) -> onnx.ModelProto:
    """Each function calls the one before twice."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function(
            "f", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets
        )
    ]
    for level in range(1, levels):
        calls = [
            helper.make_node(f"F{level - 1}", [start], [end], domain="f")
            for start, end in (("a", "m"), ("m", "b"))
        ]
        functions.append(helper.make_function("f", f"F{level}", ["a"], ["b"], calls, opsets))
    node = helper.make_node(f"F{levels - 1}", ["x"], ["y"], name="outer", domain="f")
    return _model([node], {}, functions=functions, opsets=[helper.make_opsetid("f", 1)])


def _growing_loop(count: int) -> onnx.ModelProto:
    """A state that grows in each iteration, so that the loop has to be unrolled."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["s", "s"], ["s2"], axis=0),
            helper.make_node("ReduceSum", ["s2"], ["s3"], keepdims=1),
            helper.make_node("Concat", ["s", "s3"], ["s4"], axis=0),
            helper.make_node("Identity", ["c"], ["c2"]),
        ],
        "body",
        [_info("i", [], TensorProto.INT64), _info("c", [], TensorProto.BOOL), _info("s", None)],
        [_info("c2", [], TensorProto.BOOL), _info("s4", None)],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], name="outer", body=body)
    return _model([loop], {"n": np.int64(count)})


@pytest.mark.parametrize(
    ("model", "inner"),
    [(_doubling_functions(40), "F38"), (_growing_loop(10**7), "outer > ")],
    ids=["functions", "loop"],
)
def test_expansion_ends_at_the_limit(model: onnx.ModelProto, inner: str) -> None:
    with pytest.raises(TooMuchWorkError, match=r"outer.*max_imported_nodes") as caught:
        popc.compile(model, options={"max_imported_nodes": 300})
    assert caught.value.subject == "max_imported_nodes"
    assert inner in caught.value.message
    assert "options={'max_imported_nodes': " in caught.value.hint


def test_limits_are_those_of_the_options() -> None:
    options = popc.make_options()
    limits = ImportLimits()
    assert options.max_imported_nodes == limits.nodes
    assert options.max_computed_bytes == limits.computed_bytes


def test_what_stays_below_the_limit_compiles() -> None:
    popc.compile(_doubling_functions(5), options={"max_imported_nodes": 47})
    with pytest.raises(TooMuchWorkError):
        popc.compile(_doubling_functions(5), options={"max_imported_nodes": 46})


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (helper.make_node("Range", ["a", "b", "c"], ["r"], name="long"), [0, 10**10, 1]),
        (helper.make_node("HannWindow", ["a"], ["r"], name="long"), [10**10]),
    ],
    ids=["Range", "HannWindow"],
)
def test_values_that_fill_memory_are_not_computed(
    node: onnx.NodeProto, constants: list[int]
) -> None:
    known = {name: np.int64(value) for name, value in zip("abc", constants, strict=False)}
    nodes = [
        node,
        helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["t"], to=_FLOAT),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    with pytest.raises(TooMuchWorkError, match=r"long.*max_computed_bytes"):
        popc.compile(_model(nodes, known))


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        (
            [helper.make_node("Expand", ["x", "a"], ["e"]), helper.make_node("Relu", ["e"], ["y"])],
            {"a": np.array([10**9, 10**9, 2])},
        ),
        (
            [
                helper.make_node("Unsqueeze", ["x", "a"], ["e"]),
                helper.make_node("Relu", ["e"], ["y"]),
            ],
            {"a": np.arange(40)},
        ),
    ],
    ids=["bytes", "rank"],
)
def test_tensors_that_no_program_can_hold(nodes: list[Any], constants: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"(bytes|dimensions), more than"):
        popc.compile(_model(nodes, constants))
