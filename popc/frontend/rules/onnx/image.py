"""Sampling at positions, and the decoding of image files."""

from __future__ import annotations

import io
import warnings
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

__all__ = ["RULES"]

_MODES: Final = {"bilinear": "linear", "bicubic": "cubic"}  # GridSample-16 -> GridSample-20
_PIXEL_FORMATS: Final = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}  # -> mode of Pillow


def _grid_sample(node: Node) -> Tensor:
    mode = node.text("mode")
    return node.emit(
        "GridSample",
        [node.input(0), node.input(1)],
        {
            "mode": _MODES.get(mode, mode),
            "padding_mode": node.text("padding_mode"),
            "align_corners": node.integer("align_corners"),
        },
    )


def _image_decoder(node: Node) -> Tensor:
    """The size of an image is in its file, so the file must be known at compile time."""
    encoded = node.require_known(0, "the size of the image")
    pixel_format = node.text("pixel_format")
    if pixel_format not in _PIXEL_FORMATS:
        raise ModelError(f"attribute 'pixel_format' is {pixel_format!r}, not RGB, BGR or Grayscale")
    return node.constant(_decoded(encoded.tobytes(), pixel_format))


def _decoded(encoded: bytes, pixel_format: str) -> Array:
    """The pixels [height, width, channels]; ONNX wants an empty matrix if that fails.

    libjpeg-turbo, which Pillow brings, upsamples chroma the way that ONNX prescribes.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ModelError(
            "ImageDecoder needs Pillow to decode its image: pip install 'popc[images]'"
        ) from error
    channels = 1 if pixel_format == "Grayscale" else 3
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(encoded)) as image:
                pixels = np.asarray(image.convert(_PIXEL_FORMATS[pixel_format]), np.uint8)
    except (OSError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return np.zeros((0, 0, channels), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return pixels[:, :, ::-1].copy() if pixel_format == "BGR" else pixels


RULES: Final = default_domain(
    {
        "GridSample": _grid_sample,
        "ImageDecoder": _image_decoder,
    }
)
