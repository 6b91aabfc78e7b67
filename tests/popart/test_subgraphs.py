"""Subgraphs: their builders, and the operators that hold them; onnxruntime runs what it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import popc
import popc_runtime
from popc import popart
from popc.frontend import load_model
from popc.popart import Builder, popart_exception
from popc.popart.loading import read_for_session


def _run(builder: Builder, feeds: dict[str, Any]) -> list[Any]:
    """What onnxruntime computes of the outputs."""
    model = onnx.load_model_from_string(builder.getModelProto())
    _without_ids(model.graph)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return list(session.run(None, feeds))


def _without_ids(graph: onnx.GraphProto) -> None:
    """onnxruntime knows no attributes but an operator's own."""
    for node in graph.node:
        kept = [item for item in node.attribute if not item.name.startswith("__")]
        for attribute in kept:
            _without_ids(attribute.g)
        del node.attribute[:]
        node.attribute.extend(kept)


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition: bool) -> None:  # noqa: FBT001 - a parameter of the test
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [3])
    choice = builder.addInputTensor("BOOL", [])
    branches = []
    for method in ("exp", "neg"):
        branch = builder.createSubgraphBuilder()
        branch.addOutputTensor(getattr(branch.aiOnnx, method)([x]))
        branches.append(branch)
    [y] = builder.aiOnnx.logical_if([choice], 1, branches[0], branches[1])
    builder.addOutputTensor(y)
    assert builder.getTensorShape(y) == [3]
    value = np.array([1, 2, 3], np.float32)
    [result] = _run(builder, {x: value, choice: np.array(condition)})
    np.testing.assert_allclose(result, -value if condition else np.exp(value), rtol=1e-6)


def test_loop() -> None:
    builder = Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2])
    trips = builder.aiOnnx.constant(np.array(3, np.int64))
    go_on = builder.aiOnnx.constant(np.array([True]).reshape(()))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    keep = body.addInputTensor("BOOL", [])
    state = body.addUntypedInputTensor()
    assert (body.getTensorShape(state), body.getTensorDtypeString(state)) == ([], "undefined")
    grown = body.aiOnnx.add([state, x])
    for name in (keep, grown, grown):
        body.addOutputTensor(name)
    last, every = builder.aiOnnx.loop([trips, go_on, x], 2, body)
    assert builder.getTensorShape(last) == [2]
    assert builder.getTensorShape(every) == [3, 2]
    model = onnx.load_model_from_string(builder.getModelProto())
    [loop] = [node for node in model.graph.node if node.op_type == "Loop"]
    [graph] = [attribute.g for attribute in loop.attribute if attribute.name == "body"]
    assert [info.name for info in graph.input] == ["input/1", "input/2", "input/3"]


def test_scan() -> None:
    builder = Builder()
    rows = builder.addInputTensor("FLOAT", [5, 2])
    start = builder.addInputTensor("FLOAT", [2])
    body = builder.createSubgraphBuilder()
    total, row = (body.addInputTensor("FLOAT", [2]) for _ in range(2))
    body.addOutputTensor(body.aiOnnx.add([total, row]))
    body.addOutputTensor(body.aiOnnx.mul([total, row]))
    last, products = builder.aiOnnx.scan([start, rows], 2, body, 1)
    for name in (last, products):
        builder.addOutputTensor(name)
    assert (builder.getTensorShape(last), builder.getTensorShape(products)) == ([2], [5, 2])
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    result, _ = _run(builder, {rows: values, start: np.zeros(2, np.float32)})
    np.testing.assert_allclose(result, values.sum(0))


def test_call_is_checked_and_typed() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    callee = builder.createSubgraphBuilder()
    callee.setGraphName("twice")
    inner = callee.addInputTensor("FLOAT", [4])
    callee.addOutputTensor(callee.aiOnnx.add([inner, inner]))
    with pytest.raises(popart_exception, match=r"For CallOp 'c', number of inputs \(2\) does not "
                       r"match that of the callee subgraph \(1\)"):  # fmt: skip
        builder.aiGraphcore.call([x, x], 1, callee, "c")
    with pytest.raises(popart_exception, match=r"number of outputs \(2\)"):
        builder.aiGraphcore.call([x], 2, callee)
    [y] = builder.aiGraphcore.call([x], 1, callee, debugName="c")
    assert builder.getTensorShape(y) == [4]
    model = onnx.load_model_from_string(builder.getModelProto())
    assert {item.domain: item.version for item in model.opset_import} == {"": 10, "ai.graphcore": 1}
    assert [
        attribute.g.name for attribute in model.graph.node[-1].attribute if attribute.g.name
    ] == ["twice"]


def test_tensors_of_the_graph_around() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    body = builder.createSubgraphBuilder()
    body.addInputTensorFromParentGraph(x)
    assert body.getInputTensorIds() == [x]
    assert body.getTensorShape(x) == [4]
    assert body.getTensorShape(body.aiOnnx.relu([x])) == [4]
    with pytest.raises(popart_exception, match="unrecognised Tensor y from higher scope"):
        body.addInputTensorFromParentGraph("y")


def test_weights_move_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.arange(5, dtype=np.int8),
        "c": np.arange(4, dtype=np.float16),
    }
    builder = Builder()
    for name, value in values.items():
        builder.addInitializedInputTensor(value, name)
    builder.addOutputTensor(builder.aiOnnx.relu(["a"]))
    builder.saveInitializersExternally(["c", "a"], "w.bin")
    builder.saveModelProto("m.onnx")
    plain = onnx.load("m.onnx", load_external_data=False)
    entries = {
        tensor.name: {item.key: item.value for item in tensor.external_data}
        for tensor in plain.graph.initializer
    }
    assert entries == {
        "a": {"location": "w.bin", "length": "24", "offset": "8"},
        "b": {},
        "c": {"location": "w.bin", "length": "8", "offset": "0"},
    }
    loaded = onnx.load("m.onnx")
    for tensor in loaded.graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), values[tensor.name])
    again = Builder("m.onnx")
    assert again.getTrainableTensorIds() == ["a", "b", "c"]
    assert again.getTensorShape("Relu:0") == [2, 3]


def test_weights_in_a_file_are_compiled(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    names = [builder.addInitializedInputTensor(np.full([3], 2.0 + n, np.float32)) for n in (0, 1)]
    y = builder.aiOnnx.mul([builder.aiOnnx.add([x, names[0]]), names[1]])
    builder.addOutputTensor(y)
    (tmp_path / "sub").mkdir()
    builder.saveInitializersExternally(names[:1], str(tmp_path / "a.bin"))
    builder.saveInitializersExternally(names[1:], str(tmp_path / "sub" / "b.bin"))
    loaded = read_for_session(builder.getModelProto())
    archive = popc.compile(load_model(loaded.proto, loaded.base_dir))
    value = np.arange(3, dtype=np.float32)
    archive.save(tmp_path / "m.popx")
    result = popc_runtime.load(tmp_path / "m.popx").run({"x": value})[y]
    np.testing.assert_array_equal(result, (value + 2) * 3)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(popart_exception, match="Unrecognised file name"):
        read_for_session(builder.getModelProto())


@pytest.mark.parametrize(
    ("ids", "file", "message"),
    [
        (["w"], "none/w.bin", "but its parent directory does not exist"),
        (["x"], "w.bin", "Tensor 'x' is not an initializer"),
        (["w", "w"], "w.bin", "Tensor 'w' already has an external data_location"),
        (["e"], "w.bin", "Tensor 'e' has no data to save externally"),
    ],
)
def test_weights_that_cannot_move(
    ids: list[str], file: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    builder = Builder()
    builder.addInputTensor("FLOAT", [2], "x")
    builder.addInitializedInputTensor(np.ones([2], np.float32), "w")
    builder.addInitializedInputTensor(np.ones([0], np.float32), "e")
    with pytest.raises(popart_exception, match=message):
        builder.saveInitializersExternally(ids, file)


@pytest.mark.slow
def test_models_above_two_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    builder = Builder()
    value = np.ones([300, 1024, 1024], np.float32)
    last = ""
    for name in ("a", "b"):
        builder.addInitializedInputTensor(value, name)
        last = builder.aiOnnx.reducesum([name])
    builder.addOutputTensor(last)
    with pytest.raises(popart_exception, match=r"larger than 2 GB.*saveInitializersExternally"):
        builder.getModelProto()
    builder.saveInitializersExternally(["a", "b"], "w.bin")
    assert Path("w.bin").stat().st_size == 2 * value.nbytes > 1 << 31
    builder.saveModelProto("m.onnx")
    again = Builder("m.onnx")
    assert again.getTensorShape("b") == [300, 1024, 1024]
    assert again.getTensorShape(last) == [1, 1, 1]


@pytest.mark.parametrize("trips", [3, None], ids=["known", "run-time"])
def test_a_body_reads_a_weight_of_the_graph_around(trips: int | None) -> None:
    """It is listed among the inputs of the body, but the node has no operand for it."""
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    count = builder.addInputTensor("INT64", []) if trips is None else ""
    w = builder.addInitializedInputTensor(np.array([2, 3], np.float32))
    ops = builder.aiOnnxOpset11
    most = count or ops.constant(np.array(trips, np.int64))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    goes_on = body.addInputTensor("BOOL", [])
    state = body.addInputTensor("FLOAT", [2])
    body.addInputTensorFromParentGraph(w)
    body.addOutputTensor(goes_on)
    body.addOutputTensor(body.aiOnnxOpset11.mul([state, w]))
    [y] = ops.loop([most, ops.constant(np.ones((), np.bool_)), x], 1, body)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    feeds = {x: np.ones(2, np.float32), count: np.array(3)}
    session.run(popart.PyStepIO({name: feeds[name] for name in feeds if name}, anchors))
    np.testing.assert_array_equal(anchors[y], [8, 27])
