"""ai.graphcore: printing, ending a run, writing variables, collectives of a single replica."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc.autodiff import differentiate
from popc.frontend import Bindings, TrainingBindings, import_model, load_model
from popc.transforms.simplify import Simplify
from popc_runtime.errors import DeviceError, ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_graph, run_op

_DOMAIN: Final = "ai.graphcore"
_X: Final = np.array([[1.0, -2.0], [3.0, 4.5]], np.float32)
_FLOAT: Final = onnx.TensorProto.FLOAT


@pytest.fixture
def printed() -> Iterator[list[str]]:
    texts: list[str] = []
    popc_runtime.set_print_hook(texts.append)
    yield texts
    popc_runtime.set_print_hook(None)


def _node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **more: Any) -> Any:
    domain = (
        "" if op_type in ("Add", "Greater", "Identity", "Loop", "Mul", "ReduceSum") else _DOMAIN
    )
    return helper.make_node(op_type, inputs, outputs, domain=domain, **more)


def _model(nodes: Sequence[Any], weights: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """A model of float32[2, 2] "x" to "y"."""
    graph = helper.make_graph(
        list(nodes),
        "effects",
        [helper.make_tensor_value_info("x", _FLOAT, [2, 2])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _compiled(model: onnx.ModelProto, folder: Path, **options: Any) -> popc_runtime.Executable:
    popc.compile(model, **options).save(folder / "m.popx", force=True)
    return popc_runtime.load(folder / "m.popx")


# -- printing --------------------------------------------------------------------------------------


def test_tensors_are_printed_in_the_order_of_the_model(printed: list[str], tmp_path: Path) -> None:
    nodes = [
        _node("PrintTensor", ["x"], ["p"], title="first"),
        _node("Mul", ["p", "p"], ["s"]),
        _node("PrintTensor", ["s"], ["unused"]),
        _node("PrintTensor", ["c"], ["q"], title="third"),
        _node("Add", ["s", "q"], ["y"]),
    ]
    program = _compiled(_model(nodes, {"c": np.array([[1, 2]], np.float32)}), tmp_path)
    np.testing.assert_array_equal(program.run({"x": _X})["y"], _X * _X + [[1, 2]])
    assert printed == [
        "first: [[ 1.0000000 -2.0000000]\n        [ 3.0000000  4.5000000]]",
        "s: [[ 1.000000  4.000000]\n    [ 9.000000 20.250000]]",
        "third: [[1.0000000 2.0000000]]",
    ]
    program.run({"x": _X})
    assert len(printed) == 6


def test_standard_error_is_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = run_op("PrintTensor", [np.arange(3)], {"title": "n"}, domain=_DOMAIN)
    np.testing.assert_array_equal(result, [0, 1, 2])
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "n: [0 1 2]"
    assert captured.out == ""


def test_large_tensors_are_summarised(printed: list[str]) -> None:
    run_op("PrintTensor", [np.zeros(5000, np.float16)], {"title": "t"}, domain=_DOMAIN)
    assert printed[0].replace("000000", "") == "t: [0.0 0.0 0.0 ... 0.0 0.0 0.0]"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "t: [1.5000000 2.0000000]"),
        ({"digits": 3}, "t: [1.50 2.00]"),
        ({"floatFormat": 2, "digits": 3}, "t: [1.50e+00 2.00e+00]"),
        ({"floatFormat": 3}, "t: [1.5   2]"),
        ({"digits": 2, "separator": ";", "openBracket": "<", "closeBracket": ">"}, "t: <1.5;2.0>"),
        ({"summariseThreshold": 1, "edgeItems": 1, "digits": 2}, "t: [1.5 2.0]"),
    ],
)
def test_the_layout_is_that_of_the_node(
    printed: list[str], attributes: dict[str, int | str], text: str
) -> None:
    x = np.array([1.5, 2], np.float32)
    run_op("PrintTensor", [x], {"title": "t", **attributes}, domain=_DOMAIN)
    assert printed[0] == text


def test_printing_in_a_loop_and_in_every_batch(printed: list[str], tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            _node("PrintTensor", ["state"], ["p"], title="state"),
            _node("Add", ["state", "state"], ["next"]),
            _node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", _FLOAT, [2, 2]),
        ],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
    )
    model = _model([_node("Loop", ["n", "", "x"], ["y"], body=body)], {"n": np.array(3)})
    program = _compiled(model, tmp_path, options={"batches_per_step": 2})
    result = program.run({"x": np.stack([_X, _X])})["y"]
    np.testing.assert_array_equal(result, np.stack([8 * _X, 8 * _X]))
    assert len(printed) == 6
    assert printed[:3] == printed[3:]


@pytest.mark.parametrize("print_gradient", [0, 1])
def test_gradients_are_printed_too(printed: list[str], print_gradient: int) -> None:
    attributes = {"title": "x", "print_gradient": print_gradient}
    graph = import_graph(one_node_model("PrintTensor", [_X], attributes, domain=_DOMAIN))
    seed = graph.add_constant("seed", graph.outputs[0].type, 2 * _X)
    found = differentiate(graph, {graph.outputs[0]: seed}, [graph.inputs[0]])
    graph.outputs = list(found.values())
    (gradient,) = run_graph(graph, {"x0": _X})
    np.testing.assert_array_equal(gradient, 2 * _X)
    titles = {text.split(":")[0] for text in printed}
    assert titles == ({"x", "x_gradient"} if print_gradient else {"x"})


# -- ending a run ----------------------------------------------------------------------------------


def test_abort_by_a_condition(tmp_path: Path) -> None:
    nodes = [
        _node("ReduceSum", ["x"], ["sum"], keepdims=0),
        _node("Greater", ["sum", "limit"], ["much"]),
        _node("Abort", ["much"], [], name="guard"),
        _node("Add", ["x", "x"], ["y"]),
    ]
    program = _compiled(_model(nodes, {"limit": np.array(10, np.float32)}), tmp_path)
    np.testing.assert_array_equal(program.run({"x": _X})["y"], 2 * _X)
    with pytest.raises(DeviceError, match="the model aborted the run at guard") as caught:
        program.run({"x": 9 * _X})
    assert caught.value.subject == "guard"
    np.testing.assert_array_equal(program.run({"x": _X})["y"], 2 * _X)


def test_abort_without_a_condition_comes_after_what_was_printed(
    printed: list[str], tmp_path: Path
) -> None:
    nodes = [
        _node("PrintTensor", ["x"], ["p"], title="before"),
        _node("Abort", [], []),
        _node("PrintTensor", ["x"], ["q"], title="after"),
        _node("Add", ["p", "q"], ["y"]),
    ]
    program = _compiled(_model(nodes), tmp_path)
    with pytest.raises(DeviceError, match="aborted"):
        program.run({"x": _X})
    assert [text.split(":")[0] for text in printed] == ["before"]


def test_a_condition_that_is_known(tmp_path: Path) -> None:
    for flag, aborts in ((False, False), (True, True)):
        nodes = [_node("Abort", ["flag"], []), _node("Add", ["x", "x"], ["y"])]
        program = _compiled(_model(nodes, {"flag": np.array([flag])}), tmp_path)
        if aborts:
            with pytest.raises(DeviceError, match="aborted"):
                program.run({"x": _X})
        else:
            program.run({"x": _X})


def test_a_condition_is_one_value() -> None:
    with pytest.raises(ModelError, match="the condition must be one value"):
        import_graph(_model([_node("Abort", ["x"], []), _node("Add", ["x", "x"], ["y"])]))


# -- training --------------------------------------------------------------------------------------


def _for_training(model: onnx.ModelProto) -> Any:
    training = TrainingBindings(lambda name, type_: name == "w")
    return import_model(load_model(model), Bindings(training=training))


def test_detach_stops_gradients_and_then_disappears() -> None:
    nodes = [
        _node("Detach", ["x"], ["d"]),
        _node("Mul", ["d", "x"], ["y"]),
    ]
    graph = import_graph(_model(nodes))
    seed = graph.add_constant("seed", graph.outputs[0].type, np.ones((2, 2), np.float32))
    found = differentiate(graph, {graph.outputs[0]: seed}, [graph.inputs[0]])
    graph.add_output("dx", found[graph.inputs[0]])
    y, gradient = run_graph(graph, {"x": _X})
    np.testing.assert_array_equal(y, _X * _X)
    np.testing.assert_array_equal(gradient, _X)
    assert "Detach" in {op.op_type for op in graph.ops}
    Simplify().run(graph)
    assert "Detach" not in {op.op_type for op in graph.ops}


def test_a_variable_gets_a_new_value() -> None:
    nodes = [
        _node("Add", ["x", "count"], ["more"]),
        _node("CopyVarUpdate", ["count", "more"], ["updated"]),
        _node("Mul", ["updated", "w"], ["y"]),
    ]
    weights = {"count": np.zeros((2, 2), np.float32), "w": np.ones((2, 2), np.float32)}
    imported = _for_training(_model(nodes, weights))
    ((variable, value),) = imported.updates
    assert (variable.name, value.type) == ("count", variable.type)
    assert value.producer is not None
    assert value.producer.op_type == "Add"
    assert {item.name for item in imported.graph.variables} == {"count", "w"}


def test_a_variable_needs_training() -> None:
    nodes = [_node("CopyVarUpdate", ["w", "x"], ["u"]), _node("Add", ["x", "w"], ["y"])]
    model = _model(nodes, {"w": np.zeros((2, 2), np.float32)})
    with pytest.raises(
        ModelError,
        match="writes 'w', which is a constant here: compile with constant_weights = false",
    ):
        import_graph(model)


def test_batch_statistics_are_written() -> None:
    channels = [f"c{index}" for index in range(4)]
    nodes = [
        _node("BatchNormalization", ["x", *channels], ["y", "mean", "var", "m", "v"]),
    ]
    imported = _for_training(_model(nodes, dict.fromkeys(channels, np.ones(2, np.float32))))
    assert [update.name for update, _ in imported.updates] == ["c2", "c3"]


# -- collectives -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "attributes", "expected"),
    [
        ("ReplicatedAllReduce", {}, _X),
        ("ReplicatedAllReduce", {"__collectiveCommGroup": [0, 0]}, _X),
        ("ReplicatedAllReduce", {"__collectiveOperator": 7}, _X * _X),
        ("ReplicatedReduceScatter", {"op": 8}, _X.reshape(-1)),
        ("ReplicatedAllGather", {}, _X.reshape(-1)),
    ],
)
def test_collectives_of_one_replica(
    op_type: str, attributes: Mapping[str, Any], expected: Array
) -> None:
    np.testing.assert_array_equal(run_op(op_type, [_X], attributes, domain=_DOMAIN)[0], expected)


def test_there_are_nine_collective_operators() -> None:
    with pytest.raises(ModelError, match="unknown collective operator 9"):
        run_op("ReplicatedAllReduce", [_X], {"__collectiveOperator": 9}, domain=_DOMAIN)
