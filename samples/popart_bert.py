"""Train a small BERT through PopART's interface, and compare with PyTorch.

pip install ./facade; python samples/popart_bert.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import popart
from popart_steps import MICRO_BATCHES, REPLICAS, STEPS, Task, compare, train

BATCH, LENGTH, WORDS = 2, 8, 30
HIDDEN, HEADS, INNER = 16, 4, 32
RATE, EPSILON = 1e-3, 1e-5
# What PyTorch gave: the loss of each step.
RECORDED = (3.626199, 3.669507, 3.593903, 3.712486, 3.633654, 3.627732)


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """The first values of all weights."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, HIDDEN), "places": (LENGTH, HIDDEN)}
    for layer in (0, 1):
        shapes |= {
            f"qkv{layer}": (HIDDEN, 3 * HIDDEN),
            f"out{layer}": (HIDDEN, HIDDEN),
            f"up{layer}": (HIDDEN, INNER),
            f"down{layer}": (INNER, HIDDEN),
        }
    found = {
        name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
    for layer in (0, 1):
        for norm in ("a", "b"):
            found[f"scale{norm}{layer}"] = np.ones(HIDDEN, np.float32)
            found[f"shift{norm}{layer}"] = np.zeros(HIDDEN, np.float32)
    return found


def sentences() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Words [steps, micro-batches, replicas, n, length], some hidden, and those that are hidden.

    Each word follows from the one before; label -1 stands where no word is hidden.
    """
    rng = np.random.default_rng(1)
    count = (STEPS, MICRO_BATCHES, REPLICAS, BATCH)
    first = rng.integers(1, WORDS, (*count, 1))
    words = (first * 3 + np.arange(LENGTH) * 5) % (WORDS - 1) + 1
    hidden = rng.random(words.shape) < 0.3
    hidden[..., 0] = True
    labels = np.where(hidden, words, -1)
    return np.where(hidden, 0, words).astype(np.int32), labels.astype(np.int32)


class Bert:
    """The network, op by op."""

    def __init__(self) -> None:
        self.builder = popart.Builder()
        self.onnx, self.graphcore = self.builder.aiOnnx, self.builder.aiGraphcore
        add = self.builder.addInitializedInputTensor
        self.w = {name: add(value, name) for name, value in weights().items()}

    def norm(self, x: str, which: str) -> str:
        """Layer normalisation of rows [n, hidden]: one group of channels."""
        operands = [x, self.w[f"scale{which}"], self.w[f"shift{which}"]]
        return str(self.graphcore.groupnormalization(operands, 1, EPSILON)[0])

    def reshape(self, x: str, *shape: int) -> str:
        """``x`` in another shape."""
        return str(self.builder.reshape_const(self.onnx, [x], shape))

    def attention(self, x: str, layer: int) -> str:
        """Every word looks at all words of its sentence."""
        onnx, size = self.onnx, HIDDEN // HEADS
        qkv = onnx.matmul([x, self.w[f"qkv{layer}"]])
        q, k, v = (
            onnx.transpose([self.reshape(part, BATCH, LENGTH, HEADS, size)], [0, 2, 1, 3])
            for part in onnx.split([qkv], 3, axis=1)
        )
        scores = onnx.matmul([q, onnx.transpose([k], [0, 1, 3, 2])])
        shares = onnx.softmax([self.graphcore.scale([scores], size**-0.5)], axis=3)
        mixed = onnx.transpose([onnx.matmul([shares, v])], [0, 2, 1, 3])
        return str(
            onnx.matmul([self.reshape(mixed, BATCH * LENGTH, HIDDEN), self.w[f"out{layer}"]])
        )

    def layer(self, x: str, layer: int) -> str:
        """Attention and two products, each with a way around it."""
        x = self.norm(self.onnx.add([x, self.attention(x, layer)]), f"a{layer}")
        inner = self.graphcore.geluerf([self.onnx.matmul([x, self.w[f"up{layer}"]])])
        outer = self.onnx.matmul([inner, self.w[f"down{layer}"]])
        return self.norm(self.onnx.add([x, outer]), f"b{layer}")

    def task(self) -> Task:
        """The words, a layer and the loss on the first IPU; another layer on the second."""
        builder, onnx = self.builder, self.onnx
        words, labels = sentences()
        ids = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH, LENGTH]), "ids")
        wanted = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH * LENGTH]), "labels")
        with builder.virtualGraph(0), builder.pipelineStage(0):
            x = onnx.add([onnx.gather([self.w["words"], ids]), self.w["places"]])
            x = self.layer(self.reshape(x, BATCH * LENGTH, HIDDEN), 0)
        with builder.virtualGraph(1), builder.pipelineStage(1):
            x = self.layer(x, 1)
        with builder.virtualGraph(0), builder.pipelineStage(2):
            scores = onnx.matmul([x, onnx.transpose([self.w["words"]], [1, 0])])
            loss = self.graphcore.nllloss([onnx.softmax([scores]), wanted], ignoreIndex=-1)
        optimizer = popart.Adam({"defaultLearningRate": (RATE, False), "defaultEps": (1e-8, True)})
        samples = {ids: words, wanted: labels.reshape(*labels.shape[:3], -1)}
        return Task(builder, loss, list(self.w), samples, optimizer)


def in_torch() -> tuple[list[float], dict[str, np.ndarray[Any, Any]]]:
    """The same in PyTorch: the mean over the losses of micro-batches."""
    import torch
    from torch.nn import functional

    w = {name: torch.tensor(value, requires_grad=True) for name, value in weights().items()}
    optimizer = torch.optim.Adam(w.values(), RATE, eps=1e-8)

    def norm(x: Any, which: str) -> Any:
        shape = [HIDDEN]
        return functional.layer_norm(x, shape, w[f"scale{which}"], w[f"shift{which}"], EPSILON)

    def loss_of(ids: Any, labels: Any) -> Any:
        x = functional.embedding(ids, w["words"]) + w["places"]
        for layer in (0, 1):
            q, k, v = (
                part.reshape(-1, LENGTH, HEADS, HIDDEN // HEADS).transpose(1, 2)
                for part in (x @ w[f"qkv{layer}"]).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            x = norm(x + mixed.reshape(x.shape) @ w[f"out{layer}"], f"a{layer}")
            inner = functional.gelu(x @ w[f"up{layer}"])
            x = norm(x + inner @ w[f"down{layer}"], f"b{layer}")
        scores = (x @ w["words"].T).reshape(-1, WORDS)
        return functional.cross_entropy(scores, labels.reshape(-1), ignore_index=-1)

    losses = []
    for words, labels in zip(*sentences(), strict=True):
        batches = words.reshape(-1, BATCH, LENGTH), labels.reshape(-1, BATCH, LENGTH)
        parts = [
            loss_of(torch.tensor(ids).long(), torch.tensor(wanted).long())
            for ids, wanted in zip(*batches, strict=True)
        ]
        loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().numpy() for name, value in w.items()}


def main() -> int:
    """Train, and compare."""
    return int(compare(*train(Bert().task()), in_torch, RECORDED))


if __name__ == "__main__":
    sys.exit(main())
