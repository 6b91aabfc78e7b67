"""Sequences and optionals, which must be gone after import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array
from tests.support.oracles import run_model, run_onnxruntime

_RNG = np.random.default_rng(6)
_X = _RNG.normal(size=(2, 7)).astype(np.float32)
_Y = _RNG.normal(size=(2, 3)).astype(np.float32)
_CONSTANTS: dict[str, Any] = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "two": np.int64(2),
    "last": np.int64(-1),
    "nine": np.int64(9),
    "sizes": np.array([3, 0, 4]),
}


def _model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], opset: int = 18
) -> onnx.ModelProto:
    """``nodes`` over the inputs x and y and the constants above."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in (("x", _X), ("y", _Y))
    ]
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in _CONSTANTS.items()]
    graph = helper.make_graph(
        list(nodes), "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], constants
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _run(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[Array]:
    return run_model(_model(nodes, outputs), {"x": _X, "y": _Y})


def _check(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> None:
    """popc gives the tensors that onnxruntime gives."""
    feeds = {"x": _X, "y": _Y}
    expected = run_onnxruntime(_model(nodes, outputs), feeds)
    for actual, wanted in zip(_run(nodes, outputs), expected, strict=True):
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)


def _pair(*further: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [helper.make_node("SequenceConstruct", ["x", "y"], ["s"]), *further]


@pytest.mark.parametrize("position", ["zero", "one", "last"])
def test_at(position: str) -> None:
    _check(_pair(helper.make_node("SequenceAt", ["s", position], ["t"])), ["t"])


@pytest.mark.parametrize("position", ["", "zero", "two", "last"])
def test_insert(position: str) -> None:
    names = ["s", "x", position] if position else ["s", "x"]
    nodes = _pair(
        helper.make_node("SequenceInsert", names, ["more"]),
        helper.make_node("SequenceLength", ["more"], ["n"]),
        *(helper.make_node("SequenceAt", ["more", i], [i + "th"]) for i in ("zero", "one", "two")),
    )
    _check(nodes, ["n", "zeroth", "oneth", "twoth"])


@pytest.mark.parametrize("position", ["", "zero", "last"])
def test_erase(position: str) -> None:
    names = ["s", position] if position else ["s"]
    nodes = _pair(
        helper.make_node("SequenceErase", names, ["less"]),
        helper.make_node("SequenceAt", ["less", "zero"], ["t"]),
        helper.make_node("SequenceLength", ["less"], ["n"]),
    )
    _check(nodes, ["t", "n"])


def test_empty_sequences_grow() -> None:
    nodes = [
        helper.make_node("SequenceEmpty", [], ["e"], dtype=TensorProto.FLOAT),
        helper.make_node("SequenceInsert", ["e", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "zero"], ["t"]),
        helper.make_node("SequenceLength", ["e"], ["n"]),
    ]
    _check(nodes, ["t", "n"])


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("split", "keepdims"), [("", 1), ("", 0), ("two", 1), ("sizes", 1)])
def test_split_to_sequence(axis: int, split: str, keepdims: int) -> None:
    names = ["x", split] if split else ["x"]
    nodes = [
        helper.make_node("SplitToSequence", names, ["s"], axis=axis, keepdims=keepdims),
        helper.make_node("SequenceAt", ["s", "zero"], ["first"]),
        helper.make_node("SequenceAt", ["s", "last"], ["end"]),
        helper.make_node("SequenceLength", ["s"], ["n"]),
    ]
    _check(nodes, ["first", "end", "n"])


@pytest.mark.parametrize(("axis", "new_axis"), [(0, 0), (-1, 0), (0, 1), (-1, 1), (2, 1)])
def test_concat_from_sequence(axis: int, new_axis: int) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["t"], axis=axis, new_axis=new_axis),
    ]
    _check(nodes, ["t"])


def test_map_takes_elements_tensors_and_outer_values() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Mul", ["sum", "c"], ["product"]),
            helper.make_node("Sub", ["product", "y"], ["less"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("less", "sum")],
    )
    nodes = [
        helper.make_node("Mul", ["y", "y"], ["z"]),
        helper.make_node("SequenceConstruct", ["y", "z"], ["s"]),
        helper.make_node("SequenceConstruct", ["z", "z"], ["r"]),
        helper.make_node("SequenceMap", ["s", "r", "y"], ["m", "k"], body=body),
        helper.make_node("SequenceAt", ["m", "one"], ["t"]),
        helper.make_node("SequenceAt", ["k", "zero"], ["u"]),
    ]
    t, u = _run(nodes, ["t", "u"])
    square = _Y * _Y
    np.testing.assert_array_equal(t, (square + square) * _Y - _Y)
    np.testing.assert_array_equal(u, _Y + square)


def test_sequences_as_outputs_are_their_elements() -> None:
    first, second = _run(_pair(), ["s"])
    np.testing.assert_array_equal(first, _X)
    np.testing.assert_array_equal(second, _Y)


def test_optionals() -> None:
    float_tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Optional", ["x"], ["full"]),
        helper.make_node("Optional", [], ["none"], type=float_tensor),
        *(
            helper.make_node("OptionalHasElement", [name] if name else [], [f"has_{name}"])
            for name in ("full", "none", "x", "")
        ),
        helper.make_node("OptionalGetElement", ["full"], ["got"]),
        helper.make_node("OptionalGetElement", ["y"], ["same"]),
    ]
    *flags, got, same = _run(nodes, ["has_full", "has_none", "has_x", "has_", "got", "same"])
    assert [bool(flag) for flag in flags] == [True, False, True, False]
    np.testing.assert_array_equal(got, _X)
    np.testing.assert_array_equal(same, _Y)


def _errors() -> list[tuple[list[onnx.NodeProto], str]]:
    make = helper.make_node
    empty = make("SequenceEmpty", [], ["e"])
    none = make("Optional", [], ["o"], type=helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    return [
        (_pair(make("SequenceAt", ["s", "two"], ["t"])), "position 2 is out of range for 2"),
        (_pair(make("SequenceInsert", ["s", "x", "nine"], ["t"])), "position 9 is out of range"),
        (_pair(make("ConcatFromSequence", ["s"], ["t"], axis=0)), "operand 1 differs"),
        ([empty, make("ConcatFromSequence", ["e"], ["t"], axis=0)], "nothing to join"),
        ([empty, make("SequenceErase", ["e"], ["t"])], "out of range for 0"),
        ([none, make("OptionalGetElement", ["o"], ["t"])], "the optional is empty"),
        ([make("SplitToSequence", ["x", "zero"], ["t"])], "parts of size 0"),
        ([make("SequenceLength", ["x"], ["t"])], "input 0 must be a sequence"),
        (_pair(make("Relu", ["s"], ["t"])), "input 0 must be a tensor"),
    ]


@pytest.mark.parametrize(("nodes", "message"), _errors())
def test_positions_and_items_that_do_not_fit_are_refused(
    nodes: list[onnx.NodeProto], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        _run(nodes, ["t"])


def test_positions_must_be_known() -> None:
    nodes = _pair(
        helper.make_node("Cast", ["y"], ["at"], to=TensorProto.INT64),
        helper.make_node("SequenceAt", ["s", "at"], ["t"]),
    )
    with pytest.raises(DataDependentShapeError, match="SequenceAt"):
        _run(nodes, ["t"])


def _branches(last: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """z is [y, -y] if the sum of x is positive; otherwise what ``last`` makes of s = [x, y]."""
    then = [
        helper.make_node("SequenceErase", ["s", "zero"], ["e"]),
        helper.make_node("Neg", ["y"], ["n"]),
        helper.make_node("SequenceInsert", ["e", "n"], ["r"]),
    ]
    result = helper.make_tensor_sequence_value_info("r", TensorProto.FLOAT, None)
    bodies = [helper.make_graph(list(nodes), "b", [], [result]) for nodes in (then, last)]
    return _pair(
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("CastLike", ["zero", "total"], ["nothing"]),
        helper.make_node("Greater", ["total", "nothing"], ["c"]),
        helper.make_node("If", ["c"], ["z"], then_branch=bodies[0], else_branch=bodies[1]),
        helper.make_node("SequenceAt", ["z", "zero"], ["a"]),
        helper.make_node("SequenceAt", ["z", "last"], ["b"]),
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_return_sequences(sign: int) -> None:
    """As many elements in both, of other sizes and values."""
    model = _model(_branches([helper.make_node("Identity", ["s"], ["r"])]), ["a", "b"])
    feeds = {"x": sign * np.abs(_X), "y": _Y}
    found = popc.compile(model).load().run(feeds)
    for name, wanted in zip(("a", "b"), run_onnxruntime(model, feeds), strict=True):
        np.testing.assert_array_equal(found[name], wanted)


def test_branches_with_sequences_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataDependentShapeError, match="sequences of 2 and 3 elements"):
        _run(_branches([helper.make_node("SequenceInsert", ["s", "x"], ["r"])]), ["a", "b"])
