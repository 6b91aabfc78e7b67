"""Automatic loss scaling: the gradients that are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from popc import popart
from popc.popart.optimizer_table import optimizer_table

_Method = popart.GradientTensorTrackingMethod


def _table(names: list[str] | None, method: Any) -> Any:
    settings = popart.AutomaticLossScalingSettings(
        enabled=True, toTrackTensors=names, gradientTensorTrackingMethod=method
    )
    optimizer = popart.SGD({"lossScaling": (8.0, False)})
    return optimizer_table(optimizer, ["w"], settings)["automatic_loss_scaling"]


@pytest.mark.parametrize(
    ("names", "method", "tracked", "patterns"),
    [
        (None, _Method.AllNonViewChangingGradientTensors, "all", []),
        (None, _Method.ConvAndMatmulGradients, "products", []),
        (["t"], _Method.GradientsOfUserSpecifiedTensors, "all", ["t"]),
    ],
)
def test_tracking(names: list[str] | None, method: Any, tracked: str, patterns: list[str]) -> None:
    table = _table(names, method)
    assert (table["tracked_gradients"], table["to_track_tensors"]) == (tracked, patterns)


@pytest.mark.parametrize(
    ("names", "method"),
    [
        (["t"], _Method.AllNonViewChangingGradientTensors),
        (["t"], _Method.ConvAndMatmulGradients),
        (None, _Method.GradientsOfUserSpecifiedTensors),
    ],
)
def test_names_and_method_belong_together(names: list[str] | None, method: Any) -> None:
    with pytest.raises(popart.popart_exception, match="toTrackTensors"):
        _table(names, method)
