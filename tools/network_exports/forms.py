"""The forms in which a network is written."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from torch import nn

__all__ = ["FORMS", "Form", "form_of"]


@dataclass(frozen=True)
class Form:
    """A way of writing a network.

    Attributes:
        write: Writes it to a path.
        every: Of so many networks, one is written in this form; 0: all.
    """

    write: Callable[[nn.Module, tuple[torch.Tensor, ...], Path], None]
    every: int = 0


def form_of(
    name: str, module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path
) -> dict[str, Any]:
    """Write a network in a form; the inputs by name, as numpy has them."""
    quiet = io.StringIO()
    with redirect_stdout(quiet), redirect_stderr(quiet):
        FORMS[name].write(module, inputs, to)
    model = onnx.load(to, load_external_data=False)
    held = {tensor.name for tensor in model.graph.initializer}
    taken = [value for value in model.graph.input if value.name not in held]
    kinds = [
        onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in taken
    ]
    if len(taken) != len(inputs):
        given = "does not read all of its inputs"
        raise ValueError(given)
    return {
        value.name: tensor.numpy().astype(kind)
        for value, tensor, kind in zip(taken, inputs, kinds, strict=True)
    }


def _script(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    torch.onnx.export(module, inputs, to, dynamo=False, opset_version=17)


def _dynamo(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    torch.onnx.export(module, inputs, to, dynamo=True, external_data=False, verbose=False)


def _halves(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    halves = tuple(value.half() if value.is_floating_point() else value for value in inputs)
    torch.onnx.export(module.half(), halves, to, dynamo=False, opset_version=17)


def _optimised(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    """The model as onnxruntime saves it after its rewrites, without those for this processor."""
    import onnxruntime

    _script(module, inputs, to)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(to)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(to.read_bytes(), options, providers=["CPUExecutionProvider"])


def _dynamic_bytes(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    _script(module, inputs, to)
    quantize_dynamic(to, to)


class _Readings:
    """The inputs, three times, for calibration."""

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self.rest = [dict(feeds)] * 3

    def get_next(self) -> dict[str, Any] | None:
        return self.rest.pop() if self.rest else None


def _static_bytes(module: nn.Module, inputs: tuple[torch.Tensor, ...], to: Path) -> None:
    from onnxruntime.quantization import QuantFormat, quantize_static

    _script(module, inputs, to)
    names = [value.name for value in onnx.load(to).graph.input]
    feeds = {name: np.asarray(value.numpy()) for name, value in zip(names, inputs, strict=True)}
    quantize_static(to, to, _Readings(feeds), quant_format=QuantFormat.QDQ, per_channel=True)


FORMS: Final[dict[str, Form]] = {
    "script": Form(_script),
    "dynamo": Form(_dynamo),
    "halves": Form(_halves, 6),
    "optimised": Form(_optimised, 3),
    "dynamic": Form(_dynamic_bytes, 5),
    "static": Form(_static_bytes, 4),
}
"""Both exporters, and for some of the networks what is made of the first one's file."""
