"""Sampling at positions, and the decoding of image files."""

from __future__ import annotations

import io
import warnings
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, default_domain, reshaped
from popc.frontend.rules.moves import emit_slice
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

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


def _affine_grid(node: Node) -> Tensor:
    """The affine map of each sample, applied to the centres of pixels.

    A coordinate is a sum of what each axis has to do with it: lines that spread over planes.

    ONNX's function body takes a single sample for none, and has no number for a single pixel
    whose corners are aligned.  onnxruntime takes its last corner.
    """
    theta = node.input(0)
    size = tuple(int(item) for item in node.require_known(1, "the output shape"))
    rank = len(size) - 2
    if rank not in (2, 3) or theta.type.shape != (size[0], rank, rank + 1):
        raise ModelError(
            f"theta is {list(theta.type.shape)}, which maps no grid of size {list(size)}: it must "
            "be [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for [N, C, D, H, W]"
        )
    node.require_room(sum(size[2:]))
    aligned = node.integer("align_corners", 0) != 0
    whole = converted(node, theta, DType.FLOAT32) if theta.type.dtype.itemsize == 2 else theta
    planes = _factors(node, whole, rank)
    for axis in reversed(range(rank)):  # lines first: they are few
        centres = _centres(size[2 + axis], aligned=aligned)
        along = centres.reshape(*(len(centres) if other == axis else 1 for other in range(rank)))
        factors = _factors(node, whole, rank - 1 - axis)
        product = node.emit("Mul", [factors, node.constant(along, whole.type.dtype)])
        planes = node.emit("Add", [product, planes])
    planes = converted(node, planes, theta.type.dtype)
    return node.emit("Transpose", [planes], {"perm": (0, *range(2, 2 + rank), 1)})


def _factors(node: Node, theta: Tensor, column: int) -> Tensor:
    """A column of each affine map, [N, rank, 1, ...], for coordinates in planes of their own."""
    batch, rank, _ = theta.type.shape
    window = (range(batch), range(rank), range(column, column + 1))
    return reshaped(node, emit_slice(node, theta, window), (batch, rank, *(1,) * rank))


def _centres(count: int, *, aligned: bool) -> Array:
    """The coordinates of the pixels along an axis, from -1 to 1."""
    place = np.arange(count)
    if not aligned:
        return (2.0 * place + 1.0) / max(count, 1) - 1.0
    return 2.0 * place / (count - 1) - 1.0 if count > 1 else np.ones(count)


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
        "AffineGrid": _affine_grid,
        "GridSample": _grid_sample,
        "ImageDecoder": _image_decoder,
    }
)
