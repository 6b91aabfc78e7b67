"""The sample networks in PyTorch, over the weights of their ONNX models: oracle and rival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import onnx
from onnx import numpy_helper

__all__ = ["FORWARD", "Weights", "parameters"]

Weights: TypeAlias = "dict[str, Any]"


def parameters(model: onnx.ModelProto) -> Weights:
    """The floating-point initializers with dimensions, as parameters by name."""
    import torch

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        name: torch.nn.Parameter(torch.from_numpy(array.copy()))
        for name, array in arrays.items()
        if array.dtype.kind == "f" and array.ndim
    }


def _linear(w: Weights, x: Any, name: str) -> Any:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def digits_mlp(w: Weights, x: Any) -> Any:
    """image [n, 64] -> logits [n, 10]."""
    for name in ("fc1", "fc2"):
        x = _linear(w, x, name).relu()
    return _linear(w, x, "fc3")


def digits_cnn(w: Weights, x: Any) -> Any:
    """image [n, 1, 8, 8] -> logits [n, 10]."""
    from torch.nn.functional import conv2d, max_pool2d

    for name in ("conv1", "conv2", "conv3"):
        x = conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=1).relu()
        if name != "conv1":
            x = max_pool2d(x, 2)
    return _linear(w, _linear(w, x.flatten(1), "fc1").relu(), "fc2")


def photo_cnn(w: Weights, x: Any) -> Any:
    """image [n, 3, 32, 32] -> logits [n, 10]."""
    from torch.nn.functional import conv2d, max_pool2d

    for name in ("conv1", "conv2", "conv3"):
        x = conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=1).relu()
        x = max_pool2d(x, 2)
    return _linear(w, x.flatten(1), "fc")


def sorting_transformer(w: Weights, tokens: Any, heads: int = 4) -> Any:
    """tokens [n, length] -> logits [n, 10, length]."""
    from torch.nn.functional import gelu, layer_norm

    def norm(x: Any, name: str) -> Any:
        return layer_norm(x, x.shape[-1:], w[f"{name}.scale"], w[f"{name}.bias"])

    x = w["embedding"][tokens] + w["position"]
    batch, length, size = x.shape
    for layer in ("layer0", "layer1"):
        y = norm(x, f"{layer}.norm1")
        q, k, v = (
            _linear(w, y, f"{layer}.{part}").reshape(batch, length, heads, -1).transpose(1, 2)
            for part in "qkv"
        )
        scores = (q @ k.transpose(2, 3)) * (size // heads) ** -0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, size)
        x = x + _linear(w, mixed, f"{layer}.out")
        y = gelu(_linear(w, norm(x, f"{layer}.norm2"), f"{layer}.up"))
        x = x + _linear(w, y, f"{layer}.down")
    return _linear(w, norm(x, "norm"), "head").transpose(1, 2)


FORWARD: dict[str, Callable[[Weights, Any], Any]] = {
    "digits_cnn": digits_cnn,
    "digits_mlp": digits_mlp,
    "photo_cnn": photo_cnn,
    "sorting_transformer": sorting_transformer,
}
