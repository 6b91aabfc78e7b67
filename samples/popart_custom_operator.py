"""A program for PopART that trains through an operator of its own, which is written in Python.

pip install ./facade; python samples/popart_custom_operator.py

PopART loads a C++ library that registers an operator, its shape inference and its gradient.  Here
`popart.registerCustomOp` takes functions on numpy's arrays instead; the rest of the program is as
it was.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import popart

import popc

_Array = np.ndarray[Any, Any]
_ALPHA, _RATE, _STEPS = 0.125, 0.25, 5


def leaky(inputs: Sequence[_Array], attributes: Mapping[str, Any]) -> _Array:
    """x, or alpha x where it is below 0."""
    (x,) = inputs
    return np.where(x < 0, np.float32(attributes["alpha"]) * x, x)


def leaky_gradient(
    inputs: Sequence[_Array],
    outputs: Sequence[_Array],
    gradients: Sequence[_Array],
    attributes: Mapping[str, Any],
) -> list[_Array]:
    """The gradient of x."""
    del outputs
    return [np.where(inputs[0] < 0, np.float32(attributes["alpha"]), 1) * gradients[0]]


def build(weight: _Array) -> tuple[popart.Builder, str, str, str]:
    """The model, and the names of its input, its weight and its loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 3])
    w = builder.addInitializedInputTensor(weight, "w")
    y = builder.aiOnnx.matmul([x, w])
    [y] = builder.customOp(
        opName="LeakyRelu",
        opVersion=1,
        domain="com.acme",
        inputs=[y],
        attributes={"alpha": _ALPHA},
        numOutputs=1,
    )
    return builder, x, w, builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)


def train(data: _Array, weight: _Array) -> _Array:
    """The weight after some steps of gradient descent."""
    builder, x, w, loss = build(weight)
    session = popart.TrainingSession(
        fnModel=builder.getModelProto(),
        dataFlow=popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss=loss,
        optimizer=popart.ConstSGD(_RATE),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for _ in range(_STEPS):
        session.run(popart.PyStepIO({x: data}, anchors))
        print(f"loss {float(anchors[loss]):.6f}")
    session.weightsToHost()
    trained = np.empty_like(weight)
    session.readWeights(popart.PyWeightsIO({w: trained}))
    return trained


def expected(data: _Array, weight: _Array) -> _Array:
    """The same by numpy."""
    for _ in range(_STEPS):
        y = data @ weight
        slope = np.where(y < 0, _ALPHA, 1)
        weight = weight - _RATE * data.T @ (np.sign(y) * slope)
    return weight


def main() -> int:
    """Train; 1 if the weight is not what numpy makes of it."""
    popart.registerCustomOp(
        "LeakyRelu", 1, "com.acme", popc.custom.like_first, leaky, leaky_gradient
    )
    random = np.random.default_rng(0)
    data = random.standard_normal((4, 3), np.float32)
    weight = random.standard_normal((3, 2), np.float32)
    same = np.allclose(train(data, weight), expected(data, weight), rtol=1e-5, atol=1e-5)
    print("equal" if same else "NOT EQUAL")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
