"""Numbers of optimizers as anchors, and batches that are cut."""

from __future__ import annotations

import numpy as np
import pytest

from popc import popart


@pytest.mark.parametrize(
    ("rate", "decay"), [((0.5, True), (0.0, True)), ((0.5, False), (0.5, True))]
)
def test_numbers_of_the_optimizer_are_anchors(
    rate: tuple[float, bool], decay: tuple[float, bool]
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    weight = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([x, weight])], 1.0)
    names = [
        f"{name}___default___FLOAT" for name in ("scaledLearningRate0", "weightDecayScaleFactor0")
    ]
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, names),
        loss,
        popart.SGD({"defaultLearningRate": rate, "defaultWeightDecay": decay}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, anchors))
    assert [float(anchors[name]) for name in names] == [rate[0], 1 - rate[0] * decay[0]]


def test_the_batch_of_a_recurrent_layer_is_its_second_dimension() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5, 2, 3])
    state = builder.addInputTensor("FLOAT", [2, 2, 4])
    shapes = [(4, 7, 4), (4, 4)]
    weights = [
        builder.addInitializedInputTensor(np.full(shape, 0.1, np.float32)) for shape in shapes
    ]
    y = builder.aiGraphcore.lstm([x, *weights, state])[0]
    results = []
    for factor in (0, 2):
        options = popart.SessionOptions()
        options.batchSerializationSettings.factor = factor
        session = popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [y]),
            popart.DeviceManager().createCpuDevice(),
            userOptions=options,
        )
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        data = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 2, 3)
        session.run(popart.PyStepIO({x: data, state: np.ones((2, 2, 4), np.float32)}, anchors))
        results.append(anchors[y])
    np.testing.assert_array_equal(results[0], results[1])
