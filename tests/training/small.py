"""A linear model, its training, and what it computes in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.compiling import CHECKED

__all__ = ["FIRST", "RATE", "data", "linear_model", "reference", "trainable", "training_program"]

RATE = 0.1
_RNG = np.random.default_rng(3)
_W = _RNG.standard_normal((4, 3)).astype(np.float32)
_B = _RNG.standard_normal(3).astype(np.float32)
FIRST = (_W, _B)  # the weights before training


def linear_model() -> onnx.ModelProto:
    """x [batch, 4] and target [batch, 3] -> y = x w + b, and loss = mean (y - target)^2."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["y"]),
        helper.make_node("Sub", ["y", "target"], ["error"]),
        helper.make_node("Mul", ["error", "error"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
    ]
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "linear",
        [
            helper.make_tensor_value_info("x", floats, ["batch", 4]),
            helper.make_tensor_value_info("target", floats, ["batch", 3]),
        ],
        [
            helper.make_tensor_value_info("loss", floats, []),
            helper.make_tensor_value_info("y", floats, ["batch", 3]),
        ],
        [numpy_helper.from_array(_W, "w"), numpy_helper.from_array(_B, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def trainable(**optimizer: Any) -> dict[str, Any]:
    """Training settings: the model's own loss, plain gradient descent unless told otherwise."""
    given = {"type": "sgd", "learning_rate": {"value": RATE, "const": False}, **optimizer}
    return {"loss": {"type": "identity", "input": "loss"}, "optimizer": given}


def training_program(
    folder: Path,
    train: Mapping[str, Any] | None = None,
    *,
    batch: int = 2,
    outputs: Sequence[str] = (),
    **options: Any,
) -> popc_runtime.Executable:
    """The model compiled for training and loaded; the archive is ``folder``/train.popx."""
    archive = popc.compile(
        linear_model(),
        dims={"batch": batch},
        train=train or trainable(),
        outputs=outputs,
        options={**CHECKED, **options},
    )
    return popc_runtime.load(archive.save(folder / "train.popx", force=True))


def data(samples: int = 24, seed: int = 0) -> dict[str, Array]:
    """Inputs and targets of a linear function."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, 4)).astype(np.float32)
    target = (x @ rng.standard_normal((4, 3)) + 1).astype(np.float32)
    return {"x": x, "target": target}


def reference(
    xs: Array, targets: Array, *, accumulate: int = 1, mean: bool = False
) -> tuple[dict[str, Array], Array]:
    """Gradient descent in float64 over micro-batches [n, batch, ...]: weights, and all losses."""
    w, b = _W.astype(np.float64), _B.astype(np.float64)
    losses = []
    for first in range(0, len(xs), accumulate):
        gradient_w, gradient_b = np.zeros_like(w), np.zeros_like(b)
        for x, target in zip(
            xs[first : first + accumulate], targets[first : first + accumulate], strict=True
        ):
            error = x @ w + b - target
            losses.append((error * error).mean())
            slope = 2 * error / error.size
            gradient_w += x.T @ slope
            gradient_b += slope.sum(axis=0)
        count = accumulate if mean else 1
        w, b = w - RATE * gradient_w / count, b - RATE * gradient_b / count
    return {"w": w, "b": b}, np.array(losses)
