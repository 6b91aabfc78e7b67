"""Inputs as the trained models see them in use: rendered text, speech-like sound, spectrograms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from popc_runtime.format import Array
from samples.file_type import features

__all__ = ["INPUTS", "OCR_TEXT"]

OCR_TEXT: Final = "HELLO 12345"
_PAGE: Final = ("Compilers turn programs", "into other programs.", "12 + 30 = 42", "Page 7 of 9")
# Mean and standard deviation of ImageNet by channel
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)


def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow is built without FreeType"
    return font


def _page(height: int, width: int) -> Array:
    """Lines of black text on white: float32[1, 3, height, width], normalised as for ImageNet."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    step = height // len(_PAGE)
    for row, line in enumerate(_PAGE):
        draw.text((width // 16, row * step + step // 4), line, "black", font=_font(width // 17))
    pixels = (np.asarray(image, np.float32) / 255 - _MEAN) / _DEVIATION
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[np.newaxis])


def _text_line() -> Array:
    """`OCR_TEXT` in a picture of one line: float32[1, 3, 48, 320] in [-1, 1]."""
    font = _font(36)
    left, top, right, bottom = map(int, font.getbbox(OCR_TEXT))
    image = Image.new("L", (320, 48), 255)
    place = (8 - left, (48 - (bottom - top)) // 2 - top)
    ImageDraw.Draw(image).text(place, OCR_TEXT, 0, font=font)
    assert right - left < 304, "the text does not fit the picture"
    pixels = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(np.broadcast_to(pixels, (1, 3, 48, 320)))


def _sound(samples: int) -> Array:
    """A buzz with formants and some noise, at 16 kHz."""
    time = np.arange(samples) / 16_000
    k = np.arange(1, 20)[:, np.newaxis]
    buzz: Array = (np.sin(2 * np.pi * 140 * k * time) / k).sum(axis=0)
    noise = np.random.default_rng(0).normal(0, 0.02, samples)
    return np.asarray(0.2 * buzz + noise, np.float32)


def _spectrogram() -> Array:
    """Log-mel features of harmonics that rise and fall: float32[1, 80, 800], about -1 to 1.5."""
    mel, frame = np.mgrid[0:80, 0:800].astype(np.float32)
    pitch = 9 + 3 * np.sin(frame / 60)
    voice = np.cos(2 * np.pi * mel / pitch) * np.exp(-mel / 40) * (np.sin(frame / 35) > -0.4)
    noise = np.random.default_rng(0).normal(0, 0.05, voice.shape)
    return np.asarray(voice + noise - 0.2, np.float32)[np.newaxis]


def _letters(count: int, low: int, high: int, length: int) -> Array:
    """Numbers of letters, then the padding that fills the rest."""
    row = np.zeros((1, count), np.int64)
    row[0, :length] = np.random.default_rng(0).integers(low, high, length)
    return row


INPUTS: Final[dict[str, Callable[[], dict[str, Array]]]] = {
    "magika": lambda: {"bytes": features(Path(json.__file__).read_bytes())},
    "nakdimon": lambda: {"input_1": _letters(80, 1, 30, 64).astype(np.float32)},
    "ocr_det": lambda: {"x": _page(320, 480)},
    "ocr_rec": lambda: {"x": _text_line()},
    "orientation": lambda: {"x": _page(224, 224)},
    "tashkeel": lambda: {
        "char_inputs": _letters(60, 3, 50, 48),
        "diac_inputs": _letters(60, 1, 15, 48),
        "input_lengths": np.array([48]),
    },
    "turn": lambda: {"input_features": _spectrogram()},
    "vad": lambda: {
        "input": _sound(576)[np.newaxis],
        "state": np.zeros((2, 1, 128), np.float32),
    },
}
