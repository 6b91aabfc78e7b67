"""ONNX models that are packed, or written as text: JSON, protobuf's text, ONNX's own syntax."""

from __future__ import annotations

import zlib
from typing import Final

from popc.frontend import messages as onnx
from popc_runtime.errors import ModelError

__all__ = ["read_text", "unpacked"]

GZIP: Final = b"\x1f\x8b"
_LARGEST: Final = (1 << 31) - 1  # what a message can hold
_WINDOW: Final = 31  # of zlib, for files of gzip


def unpacked(data: bytes) -> bytes:
    """The content of a gzip file; other bytes as they are.

    Raises:
        ModelError: it is damaged, or larger than a model can be.
    """
    if not data.startswith(GZIP):
        return data
    unpacker = zlib.decompressobj(_WINDOW)
    try:
        content = unpacker.decompress(data, _LARGEST)
    except zlib.error as error:
        raise ModelError(f"the gzip file is damaged: {error}") from error
    if unpacker.unconsumed_tail:
        raise ModelError("the gzip file holds more than 2 GB, which no ONNX file does")
    if not unpacker.eof:
        raise ModelError("the gzip file is damaged: its end is missing")
    return content


def read_text(data: bytes) -> onnx.ModelProto | None:
    """The model that a text describes; ``None`` if it is no such text.

    Raises:
        ModelError: it is one, but with a mistake.
    """
    start = data[:4096].lstrip()
    if not (start.startswith((b"{", b"<")) or b"ir_version" in start or b"graph {" in start):
        return None
    if b"ir_version" not in data and b"irVersion" not in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return _parsed(text, start[:1])


def _parsed(text: str, first: bytes) -> onnx.ModelProto:
    """The model that a text with such a first character describes."""
    from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
    from onnx import parser

    try:
        if first == b"<":
            return parser.parse_model(text)
        read = json_format.Parse if first == b"{" else text_format.Parse
        model: onnx.ModelProto = read(text, onnx.ModelProto())
    except (
        parser.ParseError,
        json_format.ParseError,
        text_format.ParseError,
    ) as error:
        line = " ".join(str(error).split())
        raise ModelError(f"the text of the ONNX model has a mistake: {line:.400}") from error
    return model
