"""Train a convolutional network through PopART's interface, and compare with PyTorch.

pip install ./facade; python samples/popart_cnn.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import popart
from popart_steps import MICRO_BATCHES, REPLICAS, STEPS, Task, compare, train

BATCH = 4
RATE, MOMENTUM = 0.02, 0.9
# What PyTorch gave: the loss of each step.
RECORDED = (2.348022, 2.442631, 2.379158, 2.376312, 2.275369, 2.297820)


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """The first values of all weights."""
    rng = np.random.default_rng(0)
    shapes = {
        "conv1": (8, 1, 3, 3),
        "bias1": (8,),
        "conv2": (16, 8, 3, 3),
        "bias2": (16,),
        "dense": (64, 10),
        "bias3": (10,),
    }
    return {name: (rng.normal(size=shape) / 8).astype(np.float32) for name, shape in shapes.items()}


def images() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images [steps, micro-batches, replicas, n, 1, 8, 8] and their classes, which they show."""
    rng = np.random.default_rng(1)
    count = (STEPS, MICRO_BATCHES, REPLICAS, BATCH)
    classes = rng.integers(0, 10, count).astype(np.int32)
    shapes = rng.normal(size=(10, 1, 8, 8)).astype(np.float32)
    noise = rng.normal(size=(*count, 1, 8, 8)).astype(np.float32)
    return shapes[classes] + noise / 2, classes


def task() -> Task:
    """The network on two IPUs: convolutions on the first, the rest on the second."""
    pixels, classes = images()
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", pixels.shape[3:]), "images")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]), "classes")
    w = {name: builder.addInitializedInputTensor(value, name) for name, value in weights().items()}
    onnx = builder.aiOnnx
    with builder.virtualGraph(0), builder.pipelineStage(0):
        h = onnx.relu([onnx.conv([x, w["conv1"], w["bias1"]], pads=[1, 1, 1, 1])])
        h = onnx.maxpool([h], 1, [2, 2], strides=[2, 2])[0]
    with builder.virtualGraph(1), builder.pipelineStage(1):
        h = onnx.relu([onnx.conv([h, w["conv2"], w["bias2"]], pads=[1, 1, 1, 1])])
        h = onnx.maxpool([h], 1, [2, 2], strides=[2, 2])[0]
        scores = onnx.gemm([onnx.flatten([h]), w["dense"], w["bias3"]])
        loss = builder.aiGraphcore.nllloss([onnx.softmax([scores]), labels])
    optimizer = popart.SGD(
        {"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)}
    )
    return Task(builder, loss, list(w), {x: pixels, labels: classes}, optimizer)


def in_torch() -> tuple[list[float], dict[str, np.ndarray[Any, Any]]]:
    """The same in PyTorch, on whole batches."""
    import torch
    from torch.nn import functional

    w = {name: torch.tensor(value, requires_grad=True) for name, value in weights().items()}
    optimizer = torch.optim.SGD(w.values(), RATE, MOMENTUM)
    losses = []
    for pixels, classes in zip(*images(), strict=True):
        h = torch.tensor(pixels.reshape(-1, 1, 8, 8))
        for number in (1, 2):
            h = functional.conv2d(h, w[f"conv{number}"], w[f"bias{number}"], padding=1)
            h = functional.max_pool2d(functional.relu(h), 2)
        scores = h.flatten(1) @ w["dense"] + w["bias3"]
        loss = functional.cross_entropy(scores, torch.tensor(classes.reshape(-1)).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().numpy() for name, value in w.items()}


def main() -> int:
    """Train, and compare."""
    return int(compare(*train(task()), in_torch, RECORDED))


if __name__ == "__main__":
    sys.exit(main())
