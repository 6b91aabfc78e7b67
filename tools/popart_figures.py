"""Print how long PopART's calls take here, and how far sessions start from the cache.

A Builder by the node, `prepareDevice` of ten ops, and of four models the time of a session that
the cache has, beside that of the one before, which compiles: two in this process, which has
everything imported.  Times are those of the processor, not of a clock on the wall.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from popc import popart

_LAYERS: Final = 5  # of two ops
_ROUNDS: Final = 9
_NODES: Final = (1_000, 10_000)
_ROOT: Final = Path(__file__).parents[1]


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


# -- the cache -------------------------------------------------------------------------------------


class _Model:
    """A model that is trained.

    Attributes:
        builder, loss: The model, and the name of its loss.
        options: The settings of its session.
        ipus: The IPUs that it needs.
    """

    def __init__(
        self, builder: Any, loss: str, options: popart.SessionOptions | None = None, ipus: int = 1
    ) -> None:
        self.builder, self.loss, self.ipus = builder, loss, ipus
        self.options = options or popart.SessionOptions()

    def start(self, device: popart.DeviceInfo, folder: str) -> None:
        """Make a session and prepare its device, with the cache in ``folder``."""
        self.options.enableEngineCaching, self.options.cachePath = True, folder
        session = popart.TrainingSession(
            self.builder.getModelProto(),
            popart.DataFlow(1, [self.loss]),
            self.loss,
            popart.Adam({"defaultLearningRate": (1e-3, False)}),
            device,
            userOptions=self.options,
        )
        session.prepareDevice()


def _weight(builder: popart.Builder, *shape: int) -> str:
    value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return str(builder.addInitializedInputTensor(value))


def _classified(builder: popart.Builder, scores: str, count: int) -> _Model:
    labels = builder.addInputTensor("INT32", [count])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([scores]), labels])
    return _Model(builder, loss)


def _perceptron() -> _Model:
    builder = popart.Builder()
    onnx, y = builder.aiOnnx, builder.addInputTensor("FLOAT", [8, 32])
    for inner, outer in pairwise((32, 64, 64, 10)):
        y = onnx.add([onnx.matmul([y, _weight(builder, inner, outer)]), _weight(builder, outer)])
        y = onnx.relu([y])
    return _classified(builder, y, 8)


def _convolutional() -> _Model:
    builder = popart.Builder()
    onnx, y = builder.aiOnnx, builder.addInputTensor("FLOAT", [4, 3, 32, 32])
    for inner, outer in pairwise((3, 16, 16, 32, 32)):
        operands = [y, _weight(builder, outer, inner, 3, 3), _weight(builder, outer)]
        y = onnx.relu([onnx.conv(operands, pads=[1, 1, 1, 1])])
        y = onnx.maxpool([y], 1, [2, 2], strides=[2, 2])[0]
    y = builder.reshape_const(onnx, [y], [4, 128])
    return _classified(builder, onnx.matmul([y, _weight(builder, 128, 10)]), 4)


def _sample() -> _Model:
    """The sample with a BERT: a pipeline, recomputation, and replicas."""
    sys.path[:0] = [str(_ROOT / "facade"), str(_ROOT / "samples")]
    popart_bert, popart_steps = map(import_module, ("popart_bert", "popart_steps"))

    task = popart_bert.Bert().task()
    options, ipus = popart_steps.settings(), 2 * popart_steps.REPLICAS
    return _Model(task.builder, task.loss, options, ipus)


def _normalised(builder: popart.Builder, x: str, size: int) -> str:
    operands = [x, _weight(builder, size), _weight(builder, size)]
    return str(builder.aiGraphcore.groupnormalization(operands, 1)[0])


def _layers() -> _Model:
    """Six layers of a transformer on one IPU."""
    builder, size = popart.Builder(), 32
    onnx, y = builder.aiOnnx, builder.addInputTensor("FLOAT", [16, size])
    for _ in range(6):
        q, k, v = (onnx.matmul([y, _weight(builder, size, size)]) for _ in "qkv")
        shares = onnx.softmax([onnx.matmul([q, onnx.transpose([k], [1, 0])])])
        mixed = onnx.matmul([onnx.matmul([shares, v]), _weight(builder, size, size)])
        y = _normalised(builder, onnx.add([y, mixed]), size)
        inner = builder.aiGraphcore.gelu([onnx.matmul([y, _weight(builder, size, 4 * size)])])
        outer = onnx.matmul([inner, _weight(builder, 4 * size, size)])
        y = _normalised(builder, onnx.add([y, outer]), size)
    return _classified(builder, y, 16)


_MODELS: Final = {
    "a perceptron": _perceptron,
    "a convolutional network": _convolutional,
    "the sample's BERT": _sample,
    "six layers of a transformer": _layers,
}


def _ratio(model: _Model) -> tuple[float, float]:
    """The seconds of a session that compiles, and of one that the cache has: medians."""
    times: list[list[float]] = [[], []]
    acquire = popart.DeviceManager().acquireAvailableDevice
    for _ in range(3):
        with TemporaryDirectory() as folder, acquire(model.ipus) as device:
            for kept in times:
                kept.append(_seconds(partial(model.start, device, folder)))
    return median(times[0]), median(times[1])


def main() -> None:
    """Print the figures, a line each."""
    popart.getLogger().setLevel("ERR")
    times = [_seconds(_session().prepareDevice) for _ in range(_ROUNDS)]
    ops = 2 * _LAYERS
    print(f"prepareDevice, {ops} ops: {times[0] * 1e3:.0f} ms, then {median(times) * 1e3:.0f} ms")
    for nodes in _NODES:
        print(f"Builder, {nodes:,} nodes: {_seconds(partial(_build, nodes)):.2f} s")
    for name, made in _MODELS.items():
        cold, warm = _ratio(made())
        print(f"{name}: {cold * 1e3:.0f} ms, from the cache {warm * 1e3:.0f}: {warm / cold:.1%}")


if __name__ == "__main__":
    main()
