"""Weights of a model moved into a file beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from popc.popart.errors import popart_exception
from popc.popart.logger import log

__all__ = ["save_externally"]


def save_externally(
    find: Callable[[str], onnx.TensorProto | None], ids: Sequence[str], filename: str
) -> None:
    """Write the data of weights one after another into a file, and let the weights refer to it.

    Args:
        find: The weight of a name; ``None`` if there is none.
        ids: The names, in the order of the file.
        filename: The file; an existing one is overwritten.

    Raises:
        popart_exception: the file cannot be written, or a name is no weight with data of its own.
    """
    path = Path(filename)
    if not path.absolute().parent.is_dir():
        raise popart_exception(
            f"Trying to save the data of initializers to '{filename}', but its parent directory "
            f"does not exist"
        )
    if path.exists():
        log("builder", "INFO", f"The file '{filename}' exists and is overwritten")
    try:
        with path.open("wb") as file:
            for name in ids:
                data = _data(find(name), name)
                _refer(data[0], filename, file.tell(), data[1].nbytes)
                data[1].tofile(file) if data[1].nbytes else None
    except OSError as error:
        raise popart_exception(f"Failed to open file {filename}") from error


def _data(
    tensor: onnx.TensorProto | None, name: str
) -> tuple[onnx.TensorProto, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """A weight and its bytes.

    Raises:
        popart_exception: there is no such weight, or its data lie elsewhere.
    """
    if tensor is None:
        raise popart_exception(f"Tensor '{name}' is not an initializer")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise popart_exception(f"Tensor '{name}' already has an external data_location")
    if tensor.HasField("raw_data"):
        data = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        array = np.ascontiguousarray(numpy_helper.to_array(tensor))
        data = array.reshape(-1).view(np.uint8)
    if not data.size:
        raise popart_exception(f"Tensor '{name}' has no data to save externally")
    return tensor, data


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Let a weight refer to a file instead of holding its data."""
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    for field in fields:
        tensor.ClearField(field)
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", length), ("offset", offset)):
        tensor.external_data.add(key=key, value=str(value))
