"""Files of samples: .npy, or the raw bytes of one sample after the other."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from popc_runtime.data.streams.samples import StreamType, describe
from popc_runtime.errors import ResourceError
from popc_runtime.format import Array

__all__ = ["RAW_SUFFIXES", "open_samples"]

# Of files that hold elements and nothing else; TensorFlow for the IPU writes data sets as .bin.
RAW_SUFFIXES: Final = (".bin", ".raw")


def open_samples(stream: StreamType, path: Path) -> Array:
    """The samples in a file along the first axis, mapped rather than read.

    A raw file has the element type of ``stream``, in little-endian order, and its shape.

    Raises:
        ResourceError: the file cannot be read, is of another kind, or does not hold whole samples.
    """
    if path.suffix in RAW_SUFFIXES:
        return _open_raw(stream, path)
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ResourceError(
            f"stream {stream.name!r}: cannot read {path}: {error.strerror or error}"
        ) from error
    except (ValueError, EOFError) as error:
        # numpy's own words advise to unpickle what may be a stranger's file.
        raise ResourceError(
            f"stream {stream.name!r}: {path} is not a .npy file with an array of numbers",
            hint="numpy.save writes such files; a file of raw elements is called .bin or .raw",
        ) from error
    return array


def _open_raw(stream: StreamType, path: Path) -> Array:
    storage = stream.dtype.storage.newbyteorder("<")
    sample = prod(stream.shape) * storage.itemsize
    try:
        size = path.stat().st_size
        if sample == 0 or size % sample:
            what = describe(stream.dtype, stream.shape)
            raise ResourceError(
                f"stream {stream.name!r}: {path} has {size:,} bytes, which are not whole samples "
                f"of {what} ({sample:,} bytes each)",
                hint="raw files hold the elements of one sample after the other, and nothing else",
            )
        if size == 0:
            return np.empty((0, *stream.shape), stream.dtype.storage)
        shape = (size // sample, *stream.shape)
        mapped: Array = np.memmap(path, dtype=storage, mode="r", shape=shape)
    except OSError as error:
        raise ResourceError(
            f"stream {stream.name!r}: cannot read {path}: {error.strerror or error}"
        ) from error
    return mapped
