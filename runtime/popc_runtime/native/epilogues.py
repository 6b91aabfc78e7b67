"""Epilogues of a convolution or a product, as the native kernels take them."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.maps import activation
from popc_runtime.native.record import activation_words

__all__ = ["epilogue_activation"]

_PREFIX = "activation_"


def epilogue_activation(
    binding: NativeBinding, numbers: Mapping[str, int]
) -> tuple[int, ...] | None:
    """The words of the attribute ``activation``; ``None`` if there is no such map.

    Activations are the first maps of the first family, from 1.
    """
    name = binding.text("activation", "")
    if not name:
        return activation_words(0, ())
    attributes = {
        key.removeprefix(_PREFIX): value
        for key, value in binding.attributes.items()
        if key.startswith(_PREFIX)
    }
    found = activation(name, attributes)
    if found is None:
        return None
    return activation_words(numbers[f"{found[0]}_f32"] + 1, found[1])
