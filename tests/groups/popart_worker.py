"""A PopART program that trains on four replicas, in one process or divided among several."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from popc import popart

REPLICAS: Final = 4
_STEPS: Final = 3
_BATCHES: Final = 2  # of a step, for each replica


def train(size: int, rank: int) -> dict[str, Any]:
    """Losses of the replicas of one of ``size`` processes, and the weights at the end."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 8])
    labels = builder.addInputTensor("INT32", [2])
    draw = np.random.default_rng(0)
    w = builder.addInitializedInputTensor(draw.standard_normal((8, 4)).astype(np.float32), "w")
    scores = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])])
    loss = builder.aiGraphcore.nllloss([scores, labels])
    options = popart.SessionOptions()
    own = REPLICAS // size
    options.enableReplicatedGraphs, options.replicatedGraphCount = own > 1, own
    if size > 1:
        options.enableDistributedReplicatedGraphs = True
        options.globalReplicationFactor = REPLICAS
        options.globalReplicaOffset = rank * own
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(_BATCHES, [loss], popart.AnchorReturnType("All")),
        loss,
        popart.Adam({"defaultLearningRate": (0.1, False)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": own}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    losses = []
    for _ in range(_STEPS):
        rows = draw.standard_normal((_BATCHES, REPLICAS, 2, 8)).astype(np.float32)
        marks = draw.integers(0, 4, (_BATCHES, REPLICAS, 2)).astype(np.int32)
        mine = slice(rank * own, (rank + 1) * own)
        data = {x: rows[:, mine].reshape(-1, 8), labels: marks[:, mine].reshape(-1)}
        session.run(popart.PyStepIO(data, anchors))
        losses.append(anchors[loss].reshape(_BATCHES, own, -1).copy())
    found = np.empty((8, 4), np.float32)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({w: found}))
    return {"losses": np.stack(losses), "weights": found}


if __name__ == "__main__":
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
    rank = next(int(os.environ[name]) for name in names if name in os.environ)
    np.savez(Path(sys.argv[1]) / f"{rank}.npz", **train(int(sys.argv[2]), rank))
