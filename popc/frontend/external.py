"""Tensors in files beside the model: mapped into memory, never read or copied here.

A model is data from a stranger.  Its external files must lie in its own folder (or below), so that
compiling it cannot pull other files of the machine into an archive.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

__all__ = ["external_array", "external_files", "hold"]

_MOST_DIGITS: Final = 40  # of a number of bytes; Python converts no more than 4,300
_HELD: Final = "popc_held"  # an entry of external data that lies in memory, under this name

# Bytes that have been read, by names that no model can guess; gone when the last tensor is.
_CONTENTS: Final[WeakValueDictionary[str, Array]] = WeakValueDictionary()
# Files that tensors are mapped from, by path and state; likewise.
_MAPPED: Final[WeakValueDictionary[tuple[str, int, int], mmap.mmap]] = WeakValueDictionary()


def external_array(proto: onnx.TensorProto, dtype: np.dtype[Any], base_dir: str) -> Array:
    """The elements of ``proto`` as a read-only view of a file in ``base_dir``.

    Raises:
        ModelError: the file is not in that folder, is missing, or does not hold the tensor.
    """
    where = f"tensor {proto.name!r}"
    entry = {item.key: item.value for item in proto.external_data}
    content = _content(entry, base_dir, where)
    shape = tuple(proto.dims)
    nbytes = prod(shape) * dtype.itemsize
    offset = _number(entry, "offset", 0, where)
    length = _number(entry, "length", nbytes, where)
    if length != nbytes:
        raise ModelError(
            f"{where} of shape {list(shape)} needs {nbytes:,} bytes, "
            f"but its external data has {length:,}"
        )
    if offset + nbytes > len(content):
        raise ModelError(
            f"{where} lies at bytes {offset:,} to {offset + nbytes:,} of "
            f"{entry['location']!r}, which has only {len(content):,}"
        )
    if nbytes == 0:
        return np.empty(shape, dtype)
    elements: Array = np.frombuffer(content, dtype, prod(shape), offset)
    return elements.reshape(shape)


def hold(content: Array) -> dict[str, str]:
    """Let tensors lie in bytes that have been read: an entry of their external data says so.

    It does as long as ``content`` lives, or an array that is a view of it.
    """
    name = os.urandom(16).hex()
    _CONTENTS[name] = content
    return {_HELD: name}


def _content(entry: Mapping[str, str], base_dir: str, where: str) -> mmap.mmap | Array | bytes:
    held = _CONTENTS.get(entry.get(_HELD, ""))
    if held is not None:
        return held
    path = _path_in(base_dir, entry.get("location", ""), where)
    return _mapped(path) if path.stat().st_size else b""


def external_files(model: onnx.ModelProto, base_dir: str) -> dict[str, str]:
    """The paths of all files that tensors of a model are in, by their place in ``base_dir``.

    Raises:
        ModelError: a file is not in that folder, or is missing.
    """
    files: dict[str, str] = {}
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {item.key: item.value for item in tensor.external_data}
            location = entry.get("location", "")
            if location not in files and entry.get(_HELD, "") not in _CONTENTS:
                files[location] = str(_path_in(base_dir, location, f"tensor {tensor.name!r}"))
    return dict(sorted(files.items()))


def _tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Every tensor in a message."""
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                if isinstance(part, onnx.TensorProto):
                    yield part
                else:
                    yield from _tensors(part)


def _path_in(base_dir: str, location: str, where: str) -> Path:
    """The file ``location`` of folder ``base_dir``, links resolved."""
    if not location:
        raise ModelError(f"{where} has external data without a location")
    if not base_dir:
        raise ModelError(
            f"{where} is in the external file {location!r}, "
            "but the model was not loaded from a file",
            hint="give the path of the model",
        )
    if _is_absolute(location) or ".." in PureWindowsPath(location).parts:
        raise ModelError(
            f"{where} is in {location!r}; external data must lie in the model's folder"
        )
    folder = Path(base_dir).resolve()
    try:
        path = (folder / location).resolve()
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long; NUL in it; links in a circle
        reason = error.strerror if isinstance(error, OSError) else None
        raise ModelError(
            f"{where} is in {location!r:.80}, which is no path: {reason or error}"
        ) from error
    if not path.is_relative_to(folder):
        raise ModelError(
            f"{where}: {location!r} is a link that leaves the model's folder",
            hint="replace the link by the file it points to",
        )
    if not is_file:
        raise ModelError(f"{where} is in {location!r}, which is not in the model's folder")
    return path


def _is_absolute(location: str) -> bool:
    windows = PureWindowsPath(location)
    return PurePosixPath(location).is_absolute() or bool(windows.drive or windows.root)


def _number(entry: Mapping[str, str], key: str, default: int, where: str) -> int:
    text = entry.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise ModelError(f"{where}: the {key} of its external data is {text!r:.40}")
    return int(text)


def _mapped(path: Path) -> mmap.mmap:
    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size)
    mapped = _MAPPED.get(key)
    if mapped is None:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _MAPPED[key] = mapped
    return mapped
