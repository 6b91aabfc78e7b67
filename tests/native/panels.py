"""Weights in panels, as an archive would have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from popc_runtime.format import Array, Packing, pack_panels
from popc_runtime.native import Binding
from popc_runtime.native.views import PackedView, as_view

__all__ = ["in_panels", "with_panels"]


def in_panels(weights: Array, packing: Packing) -> Array:
    """Its panels, on lines of the cache; what lies behind them is no number."""
    packed = pack_panels(weights, packing)
    memory = np.full(packed.size + 32, np.nan, np.float32)
    address: int = memory.__array_interface__["data"][0]
    start = -(address // 4) % 16
    memory[start : start + packed.size] = packed
    return memory[start : start + packed.size]


def with_panels(binding: Binding, packed: Array, packing: Packing) -> Binding:
    """What an encoder is given if input 1 is stored in ``packed``, which nobody may unpack."""

    def unpack() -> int:
        raise AssertionError("the weights are unpacked")

    view = PackedView(as_view(packed).of_memory(binding.input(1).shape), packing, unpack)
    inputs = (binding.inputs[0], view, *binding.inputs[2:])
    return replace(binding, inputs=inputs)
