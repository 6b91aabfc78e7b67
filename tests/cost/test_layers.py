"""Layers cost about what Poplar's own model of an IPU gives them, whatever their shapes."""

from __future__ import annotations

from statistics import mean

import pytest

from benchmarks.layers import cycles_of, read_layers


@pytest.mark.parametrize(
    ("family", "off"),
    [
        ("product, half", 0.08),
        ("dense, half", 0.09),
        ("dense, float", 0.15),
        ("conv 1x1", 0.06),
        ("conv", 0.07),
        ("conv, depthwise", 0.25),
        ("conv of images", 0.25),
        ("reduction", 0.10),
        ("pool", 0.08),
        ("lstm, half", 0.08),
        ("lstm, float", 0.08),
        ("gru, half", 0.08),
        ("gru, float", 0.08),
    ],
)
def test_layers_are_near_the_vendors_model(family: str, off: float) -> None:
    layers = [layer for layer in read_layers() if layer.family == family][::3]
    assert mean(abs(cycles_of(layer) / layer.cycles - 1) for layer in layers) < off
