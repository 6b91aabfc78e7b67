"""Training steps of networks that PyTorch exports, beside its own on the same weights and data."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final

import onnx

__all__ = ["EXPORTED", "exported"]

_Step = Callable[[], object]

# By what they are called here: one of `tools.network_exports`, optimizer, samples.
EXPORTED: Final[Mapping[str, tuple[str, str, int]]] = {
    "LSTM": ("lstm_rows", "adam", 32),
    "residual network": ("resnet", "sgd", 8),
    "depthwise network": ("mobilenet_v2", "sgd", 8),
    "U-net": ("unet_transposed", "adam", 4),
    "vision transformer": ("vision", "adam", 16),
}


def exported(name: str, optimize: Callable[[Any], Any]) -> tuple[onnx.ModelProto, Any, Any, _Step]:
    """A network that trains: its model, what it is given, its labels, and PyTorch's step.

    Args:
        name: One of `EXPORTED`.
        optimize: Makes PyTorch's optimizer of the weights.
    """
    import torch

    from tools.network_exports.networks import NETWORKS

    known, _, samples = EXPORTED[name]
    torch.manual_seed(0)
    case = NETWORKS[known]
    module = case.module().train()
    (x,) = case.inputs()
    x = torch.randn(samples, *x.shape[1:])
    with torch.no_grad():
        scores = module(x)
    label = torch.randint(0, scores.shape[1], (samples, *scores.shape[2:]))
    buffer, quiet = io.BytesIO(), io.StringIO()
    with redirect_stdout(quiet), redirect_stderr(quiet):
        torch.onnx.export(
            module, (x,), buffer, dynamo=False, opset_version=17, do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["logits"],
        )  # fmt: skip
    rival = optimize(module.parameters())

    def step() -> None:
        rival.zero_grad()
        torch.nn.functional.cross_entropy(module(x), label).backward()
        rival.step()

    return onnx.load_from_string(buffer.getvalue()), x.numpy(), label.int().numpy(), step
