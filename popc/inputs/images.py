"""Pictures as inputs, through pillow where that is installed."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np

from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import Array, DType, TensorSpec

__all__ = ["IMAGE_SUFFIXES", "read_image"]

IMAGE_SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
_MARGIN: Final = 0.875  # the share of the shorter side that is kept, as 224 of 256
_MEAN: Final = (0.485, 0.456, 0.406)  # of the pictures of ImageNet, and their deviation
_DEVIATION: Final = (0.229, 0.224, 0.225)


def read_image(path: Path, spec: TensorSpec, pixels: str = "auto") -> Array:
    """A picture in the shape and type of an input: resized, its middle cut out.

    Args:
        path: The file.
        spec: The input: [1, C, H, W], [1, H, W, C], or without the 1; C is 1, 3 or 4.
        pixels: "bytes" are 0 to 255, "unit" 0 to 1, "imagenet" normalised as ImageNet's are.
            "auto" is "bytes" for integers, "imagenet" for floats with three channels, else "unit".

    Raises:
        UsageError: the input does not take one picture, or pixels of this kind.
        ResourceError: pillow is missing, or the file is no picture.
    """
    channels, height, width, first = _layout(path, spec)
    kind = _kind(pixels, spec, channels)
    data: Array = np.asarray(_opened(path, _MODES[channels], (height, width)), np.float32)
    data = data.reshape(height, width, channels)
    if kind != "bytes":
        data = data / np.float32(255)
    if kind == "imagenet":
        data = (data - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
    data = data.transpose(2, 0, 1) if first else data
    return np.ascontiguousarray(data).reshape(spec.shape).astype(spec.dtype.storage)


def _layout(path: Path, spec: TensorSpec) -> tuple[int, int, int, bool]:
    """Channels, height and width, and whether channels come first."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3 and 0 not in shape and spec.dtype is not DType.BFLOAT16:
        if shape[0] in _MODES:
            return shape[0], shape[1], shape[2], True
        if shape[2] in _MODES:
            return shape[2], shape[0], shape[1], False
    raise UsageError(
        f"--input {spec.name}={path}: {spec} does not take a picture",
        hint="pictures are for [1,C,H,W] or [1,H,W,C] with 1, 3 or 4 channels; give a .npy file",
    )


def _kind(pixels: str, spec: TensorSpec, channels: int) -> str:
    if pixels == "auto":
        floats = "imagenet" if channels == 3 else "unit"
        return floats if spec.dtype.is_float else "bytes"
    if pixels != "bytes" and not spec.dtype.is_float:
        raise UsageError(f"--pixels {pixels}: {spec} takes integers", hint="--pixels bytes")
    if pixels == "imagenet" and channels != 3:
        raise UsageError(
            f"--pixels imagenet is for three channels, but {spec} has {channels}",
            hint="--pixels unit",
        )
    return pixels


def _opened(path: Path, mode: str, size: tuple[int, int]) -> Any:
    """The middle of a picture, as large as it can be, in this size."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ResourceError(
            "pillow, which reads pictures, is not installed",
            hint="pip install 'popc[images]', or give a .npy file",
        ) from None
    height, width = size
    try:
        with Image.open(path) as opened:
            picture = opened.convert(mode)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ResourceError(f"{path} is not a picture that can be read: {error}") from error
    if picture.size == (width, height):
        return picture
    scale = max(width / picture.width, height / picture.height) / _MARGIN
    resized = picture.resize(
        (max(ceil(picture.width * scale), width), max(ceil(picture.height * scale), height))
    )
    left, top = (resized.width - width) // 2, (resized.height - height) // 2
    return resized.crop((left, top, left + width, top + height))
