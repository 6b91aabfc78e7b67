"""Words that command lines choose from.  This file imports nothing that takes time."""

from __future__ import annotations

from typing import Final

__all__ = ["PIXELS"]

PIXELS: Final = ("auto", "bytes", "unit", "imagenet")  # see `popc.inputs.images.read_image`
