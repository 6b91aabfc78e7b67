"""Operators of users in PopART's interface: types while a model is built, sessions, versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from popc import custom, popart

_NAMES = {"opName": "Cube", "domain": "custom.ops"}


def _cube(inputs: Any, attributes: Any) -> Any:
    return attributes.get("scale", 1.0) * inputs[0] ** 3


def _cube_gradient(inputs: Any, outputs: Any, gradients: Any, attributes: Any) -> list[Any]:
    del outputs
    return [3 * attributes.get("scale", 1.0) * inputs[0] ** 2 * gradients[0]]


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    """Versions 1 and 2 of an operator."""
    for version in (1, 2):
        popart.registerCustomOp(
            "Cube", version, "custom.ops", custom.like_first, _cube, _cube_gradient
        )
    yield
    for version in (1, 2):
        custom.unregister("custom.ops", "Cube", version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_trains_through_a_custom_operator(version: int) -> None:
    rng = np.random.default_rng(1)
    data = rng.standard_normal((4, 3)).astype(np.float32)
    weight = rng.standard_normal((3, 2)).astype(np.float32)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 3])
    w = builder.addInitializedInputTensor(weight)
    h = builder.aiOnnx.matmul([x, w])
    (y,) = builder.customOp(
        **_NAMES, opVersion=version, inputs=[h], attributes={"scale": 2.0}, numOutputs=1
    )
    assert builder.getTensorShape(y) == [4, 2]
    assert builder.getTensorDtypeString(y) == "float32"
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    gradient = popart.reservedGradientPrefix() + w
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y, gradient]),
        loss,
        popart.SGD({"defaultLearningRate": (0.5, True)}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    product = data @ weight
    np.testing.assert_allclose(anchors[y], 2 * product**3, rtol=1e-4)
    np.testing.assert_allclose(anchors[gradient], data.T @ (6 * product**2), rtol=1e-4)


def test_registered_operators_are_listed_and_refused_twice() -> None:
    listed = popart.getSupportedOperations(includeInternal=False)
    found = [(op.domain, op.type, op.version) for op in listed]
    assert found.count(("custom.ops", "Cube", 2)) == 1
    with pytest.raises(popart.popart_exception, match="is registered already"):
        popart.registerCustomOp("Cube", 1, "custom.ops", custom.like_first, _cube)


def test_operators_of_nobody_have_no_type_and_no_session() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 3])
    (y,) = builder.customOp("Square", 1, "custom.ops", [x], {})
    assert builder.getTensorDtypeString(y) == "undefined"
    with pytest.raises(popart.popart_exception, match=r"custom\.ops"):
        popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [y]),
            popart.DeviceManager().createCpuDevice(),
        )
