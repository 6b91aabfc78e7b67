"""Variables of groups of replicas, and anchors of what a batch computes once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc_runtime
from popc import popart
from popc.popart import session_setup

_Array = np.ndarray[Any, Any]
_MODE = popart.VariableRetrievalMode
_KIND = popart.CommGroupType


def _device(ipus: int) -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})


def _grouped(
    settings: popart.VariableSettings, value: _Array, replicas: int
) -> tuple[popart.TrainingSession, str, str]:
    """A session that subtracts x from each replica's w, once; its names of x and w."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(value, settings)
    loss = builder.aiGraphcore.identityloss(
        [builder.aiOnnx.mul([x, w])], reduction=popart.ReductionType.Sum
    )
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, replicas
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {}),
        loss,
        popart.ConstSGD(1.0),
        _device(replicas),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, x, w


def _read(session: Any, name: str, shape: tuple[int, ...]) -> _Array:
    array = np.empty(shape, np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({name: array}))
    return array


@pytest.mark.parametrize(
    ("kind", "size", "groups"),
    [
        (_KIND.All, 0, [[0, 1, 2, 3]]),
        (_KIND.Consecutive, 2, [[0, 1], [2, 3]]),
        (_KIND.Orthogonal, 2, [[0, 2], [1, 3]]),
        (_KIND.Ungrouped, 0, [[0], [1], [2], [3]]),
    ],
)
@pytest.mark.parametrize("mode", [_MODE.OnePerGroup, _MODE.AllReplicas, _MODE.AllReduceReplicas])
def test_weights_of_groups(
    kind: popart.CommGroupType, size: int, groups: list[list[int]], mode: _MODE, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    value = rng.random((len(groups), 3)).astype(np.float32)
    given = value[0] if len(groups) == 1 else value
    settings = popart.VariableSettings(popart.CommGroup(kind, size), mode)
    session, x, w = _grouped(settings, given, 4)
    data = rng.random((4, 3)).astype(np.float32)
    session.run(popart.PyStepIO({x: data}, {}))
    expected = np.stack(
        [row - data[members].sum(0) for row, members in zip(value, groups, strict=True)]
    )
    on_host = expected[0] if len(groups) == 1 else expected
    spread = np.empty((4, 3), np.float32)
    for row, members in zip(expected, groups, strict=True):
        spread[members] = row
    wanted = spread if mode is _MODE.AllReplicas else on_host
    np.testing.assert_allclose(_read(session, w, wanted.shape), wanted, rtol=1e-5, atol=1e-6)

    session.modelToHost(str(tmp_path / "model.onnx"))
    saved = onnx.load(tmp_path / "model.onnx").graph.initializer[0]
    np.testing.assert_allclose(onnx.numpy_helper.to_array(saved), on_host, rtol=1e-5, atol=1e-6)
    session.writeWeights(popart.PyWeightsIO({w: np.zeros(wanted.shape, np.float32)}))
    session.weightsFromHost()
    assert not _read(session, w, wanted.shape).any()


def test_a_row_for_each_group() -> None:
    settings = popart.VariableSettings(popart.CommGroup(_KIND.Consecutive, 2))
    with pytest.raises(popart.popart_exception, match="Incorrect size of tensor init_input"):
        _grouped(settings, np.zeros((3, 3), np.float32), 4)


def _accumulating(
    *, pipelines: bool = False, accumulation: int = 4, kind: str = "All"
) -> dict[str, _Array]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 4])
    unused = builder.addInputTensor("FLOAT", [7], "unused")
    labels = builder.addInputTensor("INT32", [2])
    w = builder.addInitializedInputTensor(np.eye(4, dtype=np.float32) / 2, "w")
    with builder.virtualGraph(0):
        scores = builder.aiOnnx.matmul([x, w])
    with builder.virtualGraph(1 if pipelines else 0):
        loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([scores]), labels])
    options = popart.SessionOptions()
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = pipelines
    names = [w, f"Gradient___{w}", loss]
    names += [f"Accum___{w}"] if accumulation > 1 else []
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(3, names, popart.AnchorReturnType(kind)),
        loss,
        popart.ConstSGD(1.0),
        _device(2 if pipelines else 1),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    count = 3 * accumulation * 2
    data = np.random.default_rng(0).random((count, 4)).astype(np.float32)
    session.run(popart.PyStepIO({x: data, labels: np.arange(count, dtype=np.int32) % 4}, anchors))
    del unused  # nobody reads it, so that nobody asks for its samples
    return anchors


@pytest.mark.parametrize("pipelines", [False, True])
def test_sums_of_micro_batches_and_weights_are_anchors(*, pipelines: bool) -> None:
    found = _accumulating(pipelines=pipelines)
    weights, sums = found["w"], found["Accum___w"]
    assert weights.shape == sums.shape == (3, 4, 4, 4)
    np.testing.assert_allclose(np.cumsum(found["Gradient___w"], 1), sums, atol=1e-6)
    np.testing.assert_array_equal(weights, np.broadcast_to(weights[:, :1], weights.shape))
    np.testing.assert_array_equal(weights[0, 0], np.eye(4) / 2)
    np.testing.assert_allclose(weights[:-1, 0] - sums[:-1, -1], weights[1:, 0], atol=1e-6)
    last = _accumulating(pipelines=pipelines, kind="Final")
    np.testing.assert_array_equal(last["Accum___w"], sums[-1, -1])
    np.testing.assert_allclose(last["w"], weights[-1, 0] - sums[-1, -1], atol=1e-6)


def test_a_pipeline_without_accumulation_has_no_stale_weights() -> None:
    one_by_one = _accumulating(accumulation=1)
    for name, value in _accumulating(pipelines=True, accumulation=1).items():
        np.testing.assert_array_equal(value, one_by_one[name])


def test_a_device_that_lacks_ipus_is_found_when_it_is_prepared() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.relu([x])
    builder.virtualGraph(y, 2)
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    flow = popart.DataFlow(1, [y])
    session = popart.InferenceSession(
        builder.getModelProto(), flow, _device(2), userOptions=options
    )
    with pytest.raises(popart.popart_exception, match=r"virtual graph 2\. numIPUs = 2"):
        session.prepareDevice()
    session = popart.InferenceSession(
        builder.getModelProto(), flow, _device(3), userOptions=options
    )
    session.prepareDevice()
    assert json.loads(session._serializeIr())["maingraph"][0]["attributes"]["__ipu_number"] == "2"


@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_labels_that_name_no_class_have_probability_0(
    monkeypatch: pytest.MonkeyPatch, engine: str, *, logarithms: bool
) -> None:
    monkeypatch.setattr(
        session_setup,
        "load_program",
        lambda archive, seed, _: popc_runtime.load(archive, seed=seed, engine=engine),
    )
    count = 70
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [count, 4])
    labels = builder.addInputTensor("INT32", [count])
    w = builder.addInitializedInputTensor(np.zeros(4, np.float32), "w")
    scores = builder.aiOnnx.add([x, w])
    make = builder.aiOnnx.logsoftmax if logarithms else builder.aiOnnx.softmax
    operands = [make([scores]), labels]
    loss = builder.aiGraphcore.nllloss(operands, inputIsLogProbability=logarithms)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss, "Gradient___w"]),
        loss,
        popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    rng = np.random.default_rng(count)
    data = rng.normal(size=(count, 4)).astype(np.float32)
    given = (np.arange(count, dtype=np.int32) * 3) % 4
    given[1], given[2] = 4, -1
    session.run(popart.PyStepIO({x: data, labels: given}, anchors))
    shares = np.exp(data) / np.exp(data).sum(1, keepdims=True)
    inside = (given >= 0) & (given < 4)
    picked = shares[np.arange(count), np.where(inside, given, 0)]
    outside = 0.0 if logarithms else -np.log(1e-7)
    np.testing.assert_allclose(
        anchors[loss], np.where(inside, -np.log(picked), outside).mean(), rtol=1e-5
    )
    hot = np.where(inside[:, None], np.eye(4)[np.where(inside, given, 0)], 0)
    np.testing.assert_allclose(
        anchors["Gradient___w"], ((shares - hot) / count).sum(0), rtol=1e-4, atol=1e-6
    )
