"""Large models: weights stay in the bytes of the file, as if they were external data in there.

A message holds the bytes of its tensors, so that reading a model copies them three times: from the
file, into the message, and out of it.  Here what is parsed is the model without its large weights:
in their place stands where in the file they are.  A file that is unusual is read as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc_runtime.format import Array
from popc_runtime.format.digests import sha256
from popc_runtime.format.workers import begin_call
from popc_runtime.process.paths import open_regular

__all__ = ["KeptModel", "read_without_weights"]

_LARGE_FILE: Final = 4 << 20  # bytes; a smaller one is copied in less time than walked through
_LARGE_WEIGHT: Final = 64 << 10
_MOST_BYTES: Final = (1 << 31) - 1  # of a message: larger files are none, whoever reads them
_FIRST_BYTE: Final = 0x08  # the tag of the first field, the IR version

# Numbers of fields: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data, and of
# TensorProto those of external data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_WAY: Final = (_GRAPH, _INITIALIZER, _RAW_DATA)
# How protobuf writes values: Base 128 Varints, 64 bits, with a length in front, 32 bits.
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_SIZES: Final = {_I64: 8, _I32: 4}


class KeptModel(NamedTuple):
    """A model without its large weights, the hash of its file, and the bytes of the file.

    As long as these live, tensors are views of them.
    """

    proto: onnx.ModelProto
    sha256: str
    content: Array


def read_without_weights(path: Path) -> KeptModel | None:
    """The model in a large file; ``None`` if the file has to be read as a whole.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not _LARGE_FILE <= size <= _MOST_BYTES:
            return None
        # No array of numpy's, which asks for large pages: to find these may take longer.
        content = np.frombuffer(file.read(size), np.uint8)
    if len(content) < size or content[0] != _FIRST_BYTE:
        return None
    digest = begin_call(_digest_of, content)
    proto = onnx.ModelProto()
    from popc.frontend.external import hold

    place = {"location": path.name, **hold(content)}
    try:
        proto.ParseFromString(b"".join(_without_weights(content.data, 0, size, _WAY, place)))
    except (DecodeError, _UnusualError, IndexError):
        proto.Clear()
    sha256 = digest()
    return KeptModel(proto, sha256, content) if proto.HasField("graph") else None


def _digest_of(content: Array) -> str:
    found: str = sha256(content.data).hexdigest()
    return found


class _UnusualError(Exception):
    """Bytes that are no message, or one of a kind that ONNX does not have."""


def _without_weights(
    data: memoryview, start: int, end: int, way: tuple[int, ...], place: dict[str, str]
) -> Iterator[bytes | memoryview]:
    """The message from ``start`` to ``end``, without the large fields at the end of the ``way``.

    Where they are stands behind all other fields, of which one may say that they are not elsewhere:
    of a field that is there twice, the last one counts.
    """
    number, *further = way
    copied = start
    left_out = []
    while start < end:
        tag, value = _varint(data, start)
        if tag & 7 != _LEN:
            start = _behind(data, tag & 7, value)
            continue
        length, value = _varint(data, value)
        if tag >> 3 == number and length >= _LARGE_WEIGHT:
            yield data[copied:start]
            copied = value + length
            if further:
                inner = [*_without_weights(data, value, copied, (*further,), place)]
                yield _written(tag) + _written(sum(map(len, inner)))
                yield from inner
            else:
                left_out.append({**place, "offset": str(value), "length": str(length)})
        start = value + length
    if start != end:
        raise _UnusualError
    yield data[copied:end]
    yield from map(_elsewhere, left_out)


def _elsewhere(place: dict[str, str]) -> bytes:
    """Fields of a tensor, which say where its data is."""
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
    written: bytes = tensor.SerializeToString()
    return written


def _behind(data: memoryview, kind: int, start: int) -> int:
    """The place behind a value without a length in front."""
    if kind == _VARINT:
        return _varint(data, start)[1]
    if kind not in _SIZES:
        raise _UnusualError
    return start + _SIZES[kind]


def _varint(data: memoryview, start: int) -> tuple[int, int]:
    """A number of groups of seven bits, the lowest first, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[start]
        number |= (byte & 0x7F) << shift
        start += 1
        if byte < 0x80:
            return number, start
        shift += 7
        if shift >= 64:
            raise _UnusualError


def _written(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
