"""Print how long PopART's calls take here: a Builder by the node, and `prepareDevice`.

Times are those of the processor, not of a clock on the wall.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

import numpy as np

from popc import popart

_LAYERS: Final = 5  # of two ops
_ROUNDS: Final = 9
_NODES: Final = (1_000, 10_000)


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _session() -> popart.InferenceSession:
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [4, 4])
    weight = builder.addInitializedInputTensor(np.ones((4, 4), np.float32))
    for _ in range(_LAYERS):
        y = builder.aiOnnx.relu([builder.aiOnnx.matmul([y, weight])])
    device = popart.DeviceManager().createCpuDevice()
    return popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)


def _build(nodes: int) -> None:
    builder = popart.Builder()
    y = x = builder.addInputTensor("FLOAT", [2, 2])
    for _ in range(nodes):
        y = builder.aiOnnx.add([y, x])
    builder.getTensorShape(y)
    builder.getModelProto()


def main() -> None:
    """Print the figures, a line each."""
    times = [_seconds(_session().prepareDevice) for _ in range(_ROUNDS)]
    ops = 2 * _LAYERS
    print(f"prepareDevice, {ops} ops: {times[0] * 1e3:.0f} ms, then {median(times) * 1e3:.0f} ms")
    for nodes in _NODES:
        print(f"Builder, {nodes:,} nodes: {_seconds(partial(_build, nodes)):.2f} s")


if __name__ == "__main__":
    main()
