"""Constants in panels: the order in which native kernels read weights.

A panel is sixteen neighbouring columns of a matrix [K, N], stored line by line: [K][16].  Panels
lie one behind the other; what is missing in the last one is zero.  Whatever processor a kernel
runs on, it reads its weights where they lie, in memory that processes share.

``Packing.COLUMNS`` stores a matrix [K, N] so, ``Packing.ROWS`` a tensor [N, K, *taps] as the matrix
[*taps, K] by N: the weights of a convolution, or a matrix that a product reads transposed.
"""

from __future__ import annotations

from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Packing, Region, Slot
from popc_runtime.ground.hints import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from popc_runtime.format.dtypes import Array

__all__ = ["PANEL_ALIGNMENT", "pack_panels", "packed_bytes", "packing_problem", "unpack_panels"]

_WIDTH: Final = 16  # columns of a panel: a register of float32 with AVX-512
PANEL_ALIGNMENT: Final = 64  # bytes: a line of a panel


def packing_problem(slot: Slot) -> str:
    """The fault in how a slot is packed, as a clause; "" if it is not packed, or well."""
    if slot.packing is Packing.NONE:
        return ""
    if slot.region is not Region.CONSTANT or slot.dtype is not DType.FLOAT32:
        return f"stores {slot.dtype} of region {slot.region.name} in panels, not float32 constants"
    rank = len(slot.shape)
    if slot.strides is not None or rank < 2 or (slot.packing is Packing.COLUMNS and rank > 2):
        return f"has shape {slot.shape} and strides {slot.strides}, which do not fit panels"
    if slot.offset % PANEL_ALIGNMENT:
        return f"has panels at offset {slot.offset:,}, not a multiple of {PANEL_ALIGNMENT}"
    return ""


def packed_bytes(shape: tuple[int, ...], packing: Packing) -> int:
    """Bytes of a float32 tensor in panels."""
    lines, columns = _lines_and_columns(shape, packing)
    return -(-columns // _WIDTH) * _WIDTH * lines * DType.FLOAT32.itemsize


def _lines_and_columns(shape: tuple[int, ...], packing: Packing) -> tuple[int, int]:
    if packing is Packing.COLUMNS:
        return shape[0], shape[1]
    return prod(shape[1:]), shape[0]


def pack_panels(array: Array, packing: Packing) -> Array:
    """The elements of a float32 tensor in panels, one-dimensional."""
    import numpy as np

    lines, columns = _lines_and_columns(array.shape, packing)
    if packing is Packing.ROWS:
        array = array.transpose(*range(2, array.ndim), 1, 0)
    matrix = array.reshape(lines, columns)
    panels = -(-columns // _WIDTH)
    packed = np.zeros((panels, lines, _WIDTH), np.float32)
    whole = columns // _WIDTH
    within = matrix[:, : whole * _WIDTH].reshape(lines, whole, _WIDTH)
    packed[:whole] = within.transpose(1, 0, 2)
    if whole < panels:
        packed[whole, :, : columns - whole * _WIDTH] = matrix[:, whole * _WIDTH :]
    return packed.reshape(-1)


def unpack_panels(packed: Array, shape: tuple[int, ...], packing: Packing) -> Array:
    """The tensor that `pack_panels` was given, C-contiguous."""
    import numpy as np

    lines, columns = _lines_and_columns(shape, packing)
    count = -(-columns // _WIDTH)
    panels = packed.reshape(count, lines, _WIDTH)
    matrix = panels.transpose(1, 0, 2).reshape(lines, count * _WIDTH)[:, :columns]
    if packing is Packing.ROWS:
        turned = matrix.reshape(*shape[2:], shape[1], shape[0])
        rank = len(shape)
        matrix = turned.transpose(rank - 1, rank - 2, *range(rank - 2))
    return np.ascontiguousarray(matrix)
