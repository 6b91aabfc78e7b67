"""Small programs as users of PopART write them, that use several parts of its interface at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc import popart


def _device(ipus: int) -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_kind_of_tensor_is_returned_in_its_own_way(replicas: int) -> None:
    """Inputs, constants, weights and what is another name of an input."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    k = builder.aiOnnx.constant(np.array([1, 2], np.float32), "k")
    w = builder.addInitializedInputTensor(np.array([3, 4], np.float32), "w")
    y = builder.aiOnnx.add([builder.aiOnnx.mul([x, w]), k])
    same = builder.aiOnnx.identity([x])
    second = builder.addInputTensor("FLOAT", [2], "second")
    kinds = {y: ("EveryN", 3), x: ("Sum",), second: ("All",), w: ("Final",), k: ("All",),
             same: ("EveryN", 2)}  # fmt: skip
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(6, {name: popart.AnchorReturnType(*kind) for name, kind in kinds.items()}),
        _device(replicas),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.weightsFromHost()
    given = np.arange(12 * replicas, dtype=np.float32).reshape(6, replicas, 2)
    session.run(popart.PyStepIO({x: given, second: -given}, anchors))
    expected = {
        y: (given * [3, 4] + [1, 2])[2::3],
        x: given.sum(0),
        second: -given,
        w: np.broadcast_to([3, 4], (replicas, 2)),
        k: np.broadcast_to([1, 2], given.shape),
        same: given[1::2],
    }
    for name, value in expected.items():
        assert (anchors[name].reshape(value.shape) == value).all(), name


def test_depths_of_buffers_do_not_matter_without_prefetch() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    y = builder.aiOnnx.add([x, x])
    options = popart.SessionOptions()
    options.enablePrefetchDatastreams, options.defaultBufferingDepth = False, 3
    options.bufferingDepthMap = {x: 2}
    flow = popart.DataFlow(2, {y: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(
        builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice(), userOptions=options
    )
    session.prepareDevice()
    asked, results = list[bool](), list[np.ndarray[Any, Any]]()

    def given(_: str, is_prefetch: Any) -> Any:
        asked.append(is_prefetch)
        return np.full(3, len(asked), np.float32)

    def result(_: str) -> Any:
        results.append(np.zeros(3, np.float32))
        return results[-1]

    session.run(popart.PyStepIOCallback(given, lambda _: None, result, lambda _: None))
    assert asked == [False, False]
    assert [row[0] for row in results] == [2, 4]


def test_convolutions_of_floats_do_not_add_up_in_half() -> None:
    """Poplar ignores a type of partial sums that is smaller than that of results."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 4, 3, 3])
    weights = [np.full((1, 4, 3, 3), scale, np.float32) for scale in (1, 2)]
    ids = [builder.addInitializedInputTensor(value) for value in weights]
    ys = builder.aiGraphcore.multiconv([[x, name] for name in ids], partialsTypes=["half", "float"])
    plain = builder.aiOnnx.conv([x, ids[0]])
    builder.setPartialsType(plain, "HALF")
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [*ys, plain]), _device(1)
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.full((1, 4, 3, 3), 1000.125, np.float32)}, anchors))
    sums = [float(anchors[name].reshape(())) for name in (*ys, plain)]
    assert sums == [36 * 1000.125, 72 * 1000.125, 36 * 1000.125]
