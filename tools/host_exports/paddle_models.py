"""Programs of Paddle as ONNX models, with what Paddle computes.

    PYTHON -m tools.host_exports.paddle_models tests/recorded/hosts_paddle.npz

PYTHON is the interpreter of an environment of its own, with `paddlepaddle`, `paddle2onnx` and
`packaging`: paddle2onnx pins an onnx that popc does not take.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import paddle
import paddle2onnx
from paddle import nn, static

_OPSET: Final = 17
_BATCH, _STEPS = 8, 3
_SIDE, _CLASSES = 12, 10


def main(path: Path) -> None:
    """Write all models and results into one file."""
    paddle.seed(1)
    found = {**_lenet(np.random.default_rng(0)), **_static_program()}
    np.savez_compressed(path, **found)


def _converted(folder: Path, program: str) -> Any:
    """The ONNX model of a saved program, as bytes in an array."""
    (saved,) = (file for file in folder.glob(f"{program}.*") if file.suffix != ".pdiparams")
    weights = folder / f"{program}.pdiparams"
    given = str(weights) if weights.exists() else ""
    result = folder / f"{program}.onnx"
    paddle2onnx.export(str(saved), given, str(result), opset_version=_OPSET, optimize_tool="None")
    return np.frombuffer(result.read_bytes(), np.uint8)


def _lenet(rng: Any) -> dict[str, Any]:
    """A small LeNet: its results for some images, and the losses of some steps of SGD."""
    net = nn.Sequential(
        nn.Conv2D(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(4, 8, 3),
        nn.ReLU(),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.Linear(16, _CLASSES),
    )
    net.eval()
    image = static.InputSpec([None, 1, _SIDE, _SIDE], "float32", "image")
    with TemporaryDirectory() as folder:
        paddle.jit.save(net, f"{folder}/lenet", input_spec=[image])
        model = _converted(Path(folder), "lenet")
    images = rng.random((2 * _BATCH, 1, _SIDE, _SIDE)).astype(np.float32)
    labels = rng.integers(0, _CLASSES, (_STEPS, _BATCH))
    results = net(paddle.to_tensor(images)).numpy()
    net.train()
    optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    losses: list[float] = []
    for step in range(_STEPS):
        scores = net(paddle.to_tensor(images[:_BATCH]))
        loss = nn.functional.cross_entropy(scores, paddle.to_tensor(labels[step]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return {
        "lenet": model,
        "lenet_image": images,
        "lenet_label": labels,
        "lenet_results": results,
        "lenet_losses": np.array(losses, np.float32),
    }


def _plus_one(x: Any) -> Any:
    return x + 1


def _static_program() -> dict[str, Any]:
    """The example of IpuCompiledProgram: data + 1."""
    paddle.enable_static()
    data = static.data(name="data", shape=[None, 1], dtype="int32")
    result = _plus_one(data)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    feed = np.arange(5, dtype=np.int32).reshape(5, 1)
    (found,) = executor.run(feed={"data": feed}, fetch_list=[result])
    with TemporaryDirectory() as folder:
        static.save_inference_model(f"{folder}/plus", [data], [result], executor)
        model = onnx.load_from_string(_converted(Path(folder), "plus").tobytes())
    # paddle2onnx 2.1 names the input as the output of this program.
    model.graph.output[0].name = model.graph.node[-1].output[0]
    plus = np.frombuffer(model.SerializeToString(), np.uint8)
    return {"plus": plus, "plus_data": feed, "plus_results": found}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
