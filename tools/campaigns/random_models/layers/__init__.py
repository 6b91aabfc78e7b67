"""Layers that random models are made of, by what they work on."""

from __future__ import annotations

from typing import Final

from tools.campaigns.random_models.layers import (
    control,
    elementwise,
    images,
    movement,
    networks,
    quantized,
    quantized_networks,
    reductions,
    sequences,
)
from tools.campaigns.random_models.layers.common import Layer

__all__ = ["GENERAL", "IMAGES", "NETWORKS", "SEQUENCES", "Layer"]

GENERAL: Final[tuple[Layer, ...]] = (
    *elementwise.LAYERS,
    *movement.LAYERS,
    *reductions.LAYERS,
    *quantized.LAYERS,
    *control.LAYERS,
)
IMAGES: Final[tuple[Layer, ...]] = images.LAYERS
SEQUENCES: Final[tuple[Layer, ...]] = sequences.LAYERS
NETWORKS: Final[tuple[Layer, ...]] = (*networks.NETWORKS, *quantized_networks.QUANTIZED_NETWORKS)
