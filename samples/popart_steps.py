"""What the samples of PopART's interface share: a session on an emulated machine, and its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import popart

__all__ = ["MICRO_BATCHES", "REPLICAS", "STEPS", "Task", "compare", "settings", "train"]

REPLICAS = 2
MICRO_BATCHES = 8
STEPS = 6


@dataclass(frozen=True)
class Task:
    """A model that is trained.

    Attributes:
        builder: The builder of the model, whose ops are on virtual graphs 0 and 1.
        loss: The name of the loss.
        weights: The names of the weights.
        samples: For each input, its samples of all steps [steps, micro-batches, replicas, ...].
        optimizer: The optimizer.
    """

    builder: Any
    loss: str
    weights: Sequence[str]
    samples: Mapping[str, np.ndarray[Any, Any]]
    optimizer: Any


def settings() -> popart.SessionOptions:
    """Each replica is a pipeline over two IPUs, which adds up the gradients of its micro-batches.

    It computes what the backward pass needs once more; an update takes the mean over all.
    """
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = True
    options.autoRecomputation = popart.RecomputationType.Pipeline
    options.enableGradientAccumulation = True
    options.accumulationFactor = MICRO_BATCHES
    options.enableReplicatedGraphs = True
    options.replicatedGraphCount = REPLICAS
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return options


def train(task: Task) -> tuple[list[float], dict[str, np.ndarray[Any, Any]]]:
    """The mean loss of each step, and the weights in the end."""
    with popart.DeviceManager().acquireAvailableDevice(2 * REPLICAS) as device:
        session = popart.TrainingSession(
            task.builder.getModelProto(),
            popart.DataFlow(1, [task.loss]),
            task.loss,
            task.optimizer,
            device,
            userOptions=settings(),
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        losses = []
        for step in range(STEPS):
            inputs = {name: np.array(every[step]) for name, every in task.samples.items()}
            session.run(popart.PyStepIO(inputs, anchors))
            losses.append(float(anchors[task.loss].mean()))
        shapes = {name: task.builder.getTensorShape(name) for name in task.weights}
        weights = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO(weights))
    return losses, weights


def compare(
    losses: Sequence[float],
    weights: Mapping[str, np.ndarray[Any, Any]],
    in_torch: Callable[[], tuple[list[float], dict[str, np.ndarray[Any, Any]]]],
    recorded: Sequence[float],
) -> int:
    """Print the losses beside PyTorch's, or beside recorded ones; 0 if they agree."""
    expected = list(recorded)
    if find_spec("torch") is not None:
        expected, theirs = in_torch()
        for name, value in weights.items():
            np.testing.assert_allclose(value, theirs[name], rtol=1e-3, atol=2e-5)
    for step, (ours, other) in enumerate(zip(losses, expected, strict=True)):
        print(f"step {step}: loss {ours:.6f}, PyTorch {other:.6f}")
    agree = np.allclose(losses, expected, rtol=2e-5)
    print("equal" if agree else "different")
    return 0 if agree else 1
