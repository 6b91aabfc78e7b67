"""Checkpoints: the values of all variables and the state of a training run, in one file.

The file is in the safetensors format (https://github.com/huggingface/safetensors): 8 bytes with the
length of a JSON header, the header with dtype, shape and byte range of every tensor and a map of
strings, then the tensors.  So other tools can read it, and reading it runs no code.  What belongs
to popc is in the map of strings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import numpy as np

from popc_runtime.errors import CheckpointError, ResourceError
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import field, frozen
from popc_runtime.process.files import new_file
from popc_runtime.process.paths import open_regular, usable_path

__all__ = ["Checkpoint", "content_of", "read_checkpoint", "write_checkpoint"]

_VERSION: Final = "1"
_LENGTH_BYTES: Final = 8  # of the header of a safetensors file
_MOST_HEADER_BYTES: Final = 100_000_000  # as safetensors itself
_STATE: Final = "popc.state"
_NAMES: Final = {
    DType.FLOAT64: "F64",
    DType.FLOAT32: "F32",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.INT64: "I64",
    DType.INT32: "I32",
    DType.INT16: "I16",
    DType.INT8: "I8",
    DType.UINT64: "U64",
    DType.UINT32: "U32",
    DType.UINT16: "U16",
    DType.UINT8: "U8",
    DType.BOOL: "BOOL",
}
_DTYPES: Final = {name: dtype for dtype, name in _NAMES.items()}


@frozen
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        tensors: Arrays by name, stored as `DType.storage` says.
        dtypes: Their element types.
        model_sha256: Of the model that the archive was compiled from.
        random: The state of the device's random numbers; ``None`` if it is not known.
        progress: What else the driver of the training wants to know when it goes on: plain data.
    """

    tensors: Mapping[str, Array]
    dtypes: Mapping[str, DType]
    model_sha256: str = ""
    random: Any = None
    progress: Mapping[str, Any] = field(default_factory=dict[str, Any])


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write the whole file, or nothing.

    Raises:
        ResourceError: it cannot be written.
    """
    header: dict[str, Any] = {}
    offset = checksum = 0
    names = sorted(checkpoint.tensors)
    for name in names:
        array = checkpoint.tensors[name]
        checksum = crc32(_bytes_of(array), checksum)
        header[name] = {
            "dtype": _NAMES[checkpoint.dtypes[name]],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    state = {
        "version": _VERSION,
        "crc32": checksum,
        "model_sha256": checkpoint.model_sha256,
        "random": checkpoint.random,
        "progress": dict(checkpoint.progress),
    }
    header["__metadata__"] = {"format": "popc", _STATE: json.dumps(state, sort_keys=True)}
    encoded = json.dumps(header, sort_keys=True).encode()
    encoded += b" " * (-len(encoded) % _LENGTH_BYTES)
    with new_file(Path(path)) as file:
        file.write(len(encoded).to_bytes(_LENGTH_BYTES, "little"))
        file.write(encoded)
        for name in names:
            file.write(_bytes_of(checkpoint.tensors[name]))


def content_of(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, for `read_checkpoint` in another process.

    Raises:
        ResourceError: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise _unreadable(Path(path), error) from error


def read_checkpoint(path: str | os.PathLike[str], content: bytes | None = None) -> Checkpoint:
    """Read and check a checkpoint: the file, or what somebody else has read of it.

    Raises:
        CheckpointError: the file is no checkpoint, or damaged.
        ResourceError: it cannot be read.
    """
    target = Path(usable_path(path))
    try:
        if content is not None:
            return _Reader(target, BytesIO(content), len(content)).read()
        with open_regular(target) as file:
            return _Reader(target, file, target.stat().st_size).read()
    except OSError as error:
        raise _unreadable(target, error) from error
    except MemoryError as error:
        raise ResourceError(f"not enough memory to read {target}") from error


def _unreadable(path: Path, error: OSError) -> ResourceError:
    return ResourceError(f"cannot read {path}: {error.strerror or error}", subject=str(path))


class _Reader:
    """Reads one file; whatever does not fit is an error that says what."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.file = file
        self.size = size

    def refuse(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"cannot read checkpoint {self.path}: {what}",
            subject=str(self.path),
            hint="use another checkpoint of this training, or start again",
        )

    def read(self) -> Checkpoint:
        length = int.from_bytes(self.file.read(_LENGTH_BYTES), "little")
        start = _LENGTH_BYTES + length
        if not 2 <= length <= _MOST_HEADER_BYTES or start > self.size:
            raise self.refuse("it has no header")
        header = self._json(self.file.read(length), "its header")
        metadata = header.pop("__metadata__", {})
        state = self._json(_text(metadata, _STATE), "its state")
        if state.get("version") != _VERSION:
            raise self.refuse(f"it has version {state.get('version')!r}, not {_VERSION!r}")
        rows = sorted(self._rows(header), key=lambda row: row[3])
        tensors: dict[str, Array] = {}
        dtypes: dict[str, DType] = {}
        expected = checksum = 0
        for name, dtype, shape, first, last in rows:
            if first != expected or last - first != prod(shape) * dtype.itemsize:
                raise self.refuse(
                    f"the bytes of {name!r} do not fit its shape or follow the tensor before"
                )
            expected = last
            if start + last > self.size:
                raise self.refuse("it is truncated")
            raw = self.file.read(last - first)
            checksum = crc32(raw, checksum)
            tensors[name] = self._array(name, raw, dtype, shape)
            dtypes[name] = dtype
        if start + expected != self.size:
            raise self.refuse(
                f"it has {self.size - start - expected:,} bytes after the last tensor"
            )
        if state.get("crc32", checksum) != checksum:  # older files have none
            raise self.refuse("its content is damaged")
        progress = state.get("progress") or {}
        if not isinstance(progress, dict):
            raise self.refuse("its state is damaged")
        sha256 = _text(state, "model_sha256")
        return Checkpoint(tensors, dtypes, sha256, state.get("random"), progress)

    def _array(self, name: str, raw: bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
        try:
            return np.frombuffer(raw, dtype.storage.newbyteorder("<")).reshape(shape)
        except (OverflowError, ValueError):  # without elements, but numpy has no such shape
            raise self.refuse(f"its entry for {name!r} is damaged") from None

    def _json(self, raw: bytes | str, what: str) -> dict[str, Any]:
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.refuse(f"{what} is damaged")
        return value

    def _rows(
        self, header: Mapping[str, Any]
    ) -> Iterator[tuple[str, DType, tuple[int, ...], int, int]]:
        for name, row in header.items():
            try:
                dtype = _DTYPES[row["dtype"]]
                shape = tuple(int(dim) for dim in row["shape"])
                first, last = (int(offset) for offset in row["data_offsets"])
            except (KeyError, OverflowError, TypeError, ValueError):
                raise self.refuse(f"its entry for {name!r} is damaged") from None
            if min(shape, default=0) < 0 or not 0 <= first <= last:
                raise self.refuse(f"its entry for {name!r} is damaged")
            yield name, dtype, shape, first, last


def _bytes_of(array: Array) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data


def _text(record: Any, key: str) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""
