"""Where PopART reads ONNX in its own way, and state that a model brings along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc import popart

_X = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)


def _infer(build: Callable[[Any, str], str], **options: object) -> np.ndarray[Any, Any]:
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", list(_X.shape))
    result = build(builder, x)
    chosen = popart.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [result]),
        popart.DeviceManager().createCpuDevice(),
        userOptions=chosen,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: _X}, anchors))
    return anchors[result]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda b, x: b.aiOnnx.reducel1([x], axes=[]), np.abs(_X)),
        (lambda b, x: b.aiOnnx.reducesumsquare([x], axes=[], keepdims=0), _X**2),
        (lambda b, x: b.aiOnnx.argmax([x], axis=0, keepdims=0), np.array([1, 1], np.int32)),
        (
            lambda b, x: b.aiOnnx.topk([x, b.aiOnnx.constant(np.array([1]))])[1],
            np.array([[0], [0]], np.int32),
        ),
        (
            lambda b, x: b.aiOnnx.gather([x, b.aiOnnx.constant(np.array([1], np.uint32))]),
            _X[1:],
        ),
        (
            lambda b, x: b.aiOnnx.add(
                [
                    x,
                    b.aiOnnx.constantofshape(
                        [b.aiOnnx.constant(np.array([2, 2], np.int32))], np.array([5], np.float32)
                    ),
                ]
            ),
            _X + 5,
        ),
        (
            lambda b, x: b.aiOnnx.resize(
                [x, b.aiOnnx.constant(np.zeros(0, np.float32)), _doubled(b)],
                nearest_mode="pytorch",
            ),
            np.repeat(_X, 2, axis=1),
        ),
        (
            lambda b, x: b.aiOnnx.resize(
                [x, b.aiOnnx.constant(np.zeros(0, np.float32)), "", _sizes(b)]
            ),
            np.repeat(_X, 2, axis=1),
        ),
        (
            # One element for each dimension, in the middle: lengths are not 1 before rounding.
            lambda b, x: b.aiOnnx.resize(
                [x, b.aiOnnx.constant(np.zeros(0, np.float32)), _shrunk(b)],
                mode="linear",
                coordinate_transformation_mode="pytorch_half_pixel",
            ),
            np.array([[_X[0] @ [5 / 6, 1 / 6] * 5 / 6 + _X[1] @ [5 / 6, 1 / 6] / 6]], np.float32),
        ),
        (lambda b, x: b.aiOnnx.clip([x, _half(b, -0.5)]), np.clip(_X, -0.5, None)),
    ],
)
def test_results(build: Callable[[Any, str], str], expected: np.ndarray[Any, Any]) -> None:
    found = _infer(build)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-7)  # a resize may begin with either axis


def _doubled(builder: Any) -> str:
    """Scales of half precision, which ONNX does not take."""
    name: str = builder.aiOnnx.constant(np.array([1.0, 2.0], np.float16))
    return name


def _sizes(builder: Any) -> str:
    name: str = builder.aiOnnx.constant(np.array([2, 4], np.int32))
    return name


def _shrunk(builder: Any) -> str:
    name: str = builder.aiOnnx.constant(np.array([0.75, 0.75], np.float32))
    return name


def _half(builder: Any, bound: float) -> str:
    name: str = builder.aiOnnx.constant(np.array(bound, np.float16))
    return name


@pytest.mark.parametrize(
    ("mode", "expected"), [("", [0, 2, 5, 8]), ("pytorch", [0, 2, 5, 8]), ("ceil", [1, 4, 7, 9])]
)
def test_the_nearest_element_at_opset_10(mode: str, expected: list[int]) -> None:
    builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    data = np.arange(11, dtype=np.float32)
    x = builder.addInputTensor("FLOAT", [11])
    y = builder.aiOnnx.resize([x, builder.aiOnnx.constant(np.array([3 / 8], np.float16))])
    if mode:
        builder.addNodeAttribute("nearest_mode", mode, {y})
    flow, device = popart.DataFlow(1, [y]), popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    np.testing.assert_array_equal(anchors[y], expected)


def _session(model: bytes | str, loss: str) -> Any:
    optimizer = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)})
    session = popart.TrainingSession(
        model,
        popart.DataFlow(1, {}),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice(loadEngine=False)
    return session


def test_state_of_an_optimizer_resumes(tmp_path: Path) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    weight = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, weight])], 0.1)
    first, second = (str(tmp_path / name) for name in ("first.onnx", "second.onnx"))
    session = _session(builder.getModelProto(), loss)
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: _X}, {}))
    session.modelToHost(first)
    resumed = _session(first, loss)
    resumed.weightsFromHost()
    resumed.modelToHost(second)
    assert Path(first).read_bytes() == Path(second).read_bytes()
