"""Numbers of optimizers as anchors, batches that are cut, updates that do not overlap."""

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


@pytest.mark.parametrize(("apart", "expected"), [(False, 4), (True, 2)])
def test_gradients_of_slices_that_are_said_not_to_overlap(*, apart: bool, expected: float) -> None:
    """Then they are not added up, as in PopART: of an element of both the last one counts."""
    builder = popart.Builder()
    weight = builder.addInitializedInputTensor(np.ones(7, np.float32))
    places = [builder.addInputTensor("UINT32", [1]) for _ in range(2)]
    slices = [
        builder.aiGraphcore.dynamicslice([weight, place], [0], [4], noOverlap=apart)
        for place in places
    ]
    scaled = [builder.aiGraphcore.scale([part], 1.0 + n) for n, part in enumerate(slices)]
    everything = builder.aiOnnx.add([builder.aiOnnx.sum(scaled), slices[0]])
    loss = builder.aiGraphcore.l1loss([everything], 1.0, popart.ReductionType.Sum)
    name = f"Gradient___{weight}"
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [name]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    inputs = {place: np.array([3 * n], np.uint32) for n, place in enumerate(places)}
    session.run(popart.PyStepIO(inputs, anchors))
    np.testing.assert_array_equal(anchors[name], [2, 2, 2, expected, 2, 2, 2])


@pytest.mark.parametrize(("apart", "expected"), [(False, [1, 1, 1, 0]), (True, [1, 1, 1, 1])])
def test_gradients_of_updates_that_are_said_not_to_overlap(
    *, apart: bool, expected: list[float]
) -> None:
    """Then nobody clears what earlier updates have written, as in PopART."""
    builder = popart.Builder()
    kind = popart.DataType.FLOAT
    y = builder.aiGraphcore.init([7], kind, popart.InitType.Zero)
    weights = [builder.addInitializedInputTensor(np.ones(4, np.float32)) for _ in range(2)]
    places = [builder.addInputTensor("UINT32", [1]) for _ in weights]
    for weight, place in zip(weights, places, strict=True):
        y = builder.aiGraphcore.dynamicupdate([y, place, weight], [0], [4], noOverlap=apart)
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    name = f"Gradient___{weights[0]}"
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [name]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    inputs = {place: np.array([3 * n], np.uint32) for n, place in enumerate(places)}
    session.run(popart.PyStepIO(inputs, anchors))
    np.testing.assert_array_equal(anchors[name], expected)
