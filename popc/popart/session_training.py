"""The training of a session in the terms of popc."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import onnx

from popc.popart.optimizer_table import literal
from popc.training import TrainingSettings, parse_training

__all__ = ["training_of"]

_FLOATS: Final = (1, 10, 11, 16)  # ONNX's numbers of float32, float16, float64 and bfloat16


def training_of(
    model: onnx.ModelProto, loss: str, optimizer: Mapping[str, Any], unused: Collection[str]
) -> TrainingSettings:
    """The training file of a model whose tensor ``loss`` is the loss.

    Scalars are trained as other weights are, but for those that are ``unused``.
    """
    named = {"type": "identity", "input": loss, "name": loss}
    table: dict[str, Any] = {"loss": named, "optimizer": optimizer}
    floats = [
        weight
        for weight in model.graph.initializer
        if weight.data_type in _FLOATS and weight.name not in unused
    ]
    if any(not weight.dims for weight in floats):
        table["weights"] = {"trainable": [literal(weight.name) for weight in floats]}
    settings = parse_training(table)
    return TrainingSettings(
        settings.loss, settings.optimizer, settings.trainable, settings.frozen, False
    )
