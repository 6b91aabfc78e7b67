"""The constant region: every distinct content once, whatever its element type and shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from popc.ir import Tensor
from popc.memory.plan import ConstantBlock, aligned
from popc.ops.shared import content_digest
from popc.progress import OnBytes, no_bytes
from popc_runtime.format import Array

__all__ = ["ConstantPool"]

_GLANCE: Final = 64  # bytes at each of a few places


class ConstantPool:
    """Assigns offsets to constants, and to the initial values of variables that have one.

    Only arrays of equal size that look alike are compared, by their digests.  ``on_bytes`` is told
    of the progress.
    """

    def __init__(self, tensors: Iterable[Tensor], on_bytes: OnBytes = no_bytes) -> None:
        arrays: dict[int, Array] = {}  # by identity: graphs share the arrays that they both read
        for tensor in tensors:
            array = _data(tensor)
            arrays.setdefault(id(array), array)
        looks = {identity: _glance(array) for identity, array in arrays.items()}
        alike = Counter(looks.values())
        self.nbytes = 0
        self.blocks: list[ConstantBlock] = []
        self._offsets: dict[int, int] = {}
        found: dict[object, int] = {}
        done, total = 0, sum(array.nbytes for array in arrays.values())
        for identity, array in arrays.items():
            look = looks[identity]
            key = (look, content_digest(array) if alike[look] > 1 else b"")
            if key not in found:
                found[key] = self._append(array)
            self._offsets[identity] = found[key]
            done += array.nbytes
            on_bytes(done, total)

    def offset(self, tensor: Tensor) -> int:
        """The beginning of the data of ``tensor``."""
        return self._offsets[id(_data(tensor))]

    def _append(self, array: Array) -> int:
        if array.nbytes == 0:
            return 0
        offset = self.nbytes
        self.blocks.append(ConstantBlock(offset, np.asarray(array, order="C")))
        self.nbytes = aligned(offset + array.nbytes)
        return offset


def _glance(array: Array) -> tuple[int, bytes]:
    """The size of an array and a few of its bytes, whatever its element type and shape."""
    last = max(array.nbytes - _GLANCE, 0)
    starts = [start // _GLANCE * _GLANCE // array.itemsize for start in (0, last // 2, last)]
    count = _GLANCE // array.itemsize
    return array.nbytes, b"".join(array.flat[start : start + count].tobytes() for start in starts)


def _data(tensor: Tensor) -> Array:
    data = tensor.data if tensor.is_constant else tensor.initial
    assert data is not None, f"{tensor!r} has no data"
    return data
