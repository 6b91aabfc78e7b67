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

__all__ = [
    "PANEL_ALIGNMENT",
    "Panels",
    "pack_panels",
    "packed_bytes",
    "packing_problem",
    "unpack_panels",
]

_WIDTH: Final = 16  # columns of a panel: a register of float32 with AVX-512
PANEL_ALIGNMENT: Final = 64  # bytes: a line of a panel
_LINE_BYTES: Final = PANEL_ALIGNMENT


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


class Panels:
    """A float32 tensor in panels, which are made of the tensor where bytes of them are asked for.

    So weights are nowhere in memory twice: the writer asks for a chunk at a time.

    Attributes:
        nbytes, itemsize: As of an array of numpy's that held the panels.
    """

    def __init__(self, array: Array, packing: Packing) -> None:
        lines, columns = _lines_and_columns(array.shape, packing)
        if packing is Packing.ROWS:
            array = array.transpose(*range(2, array.ndim), 1, 0)
        self._matrix = array.reshape(lines, columns)
        self._panels = -(-columns // _WIDTH)
        self.itemsize = DType.FLOAT32.itemsize
        self.nbytes = self._panels * lines * _LINE_BYTES

    def bytes_between(self, start: int, stop: int) -> Array:
        """The bytes of the panels from ``start`` to ``stop``, which are within them."""
        import numpy as np

        first, last = start // _LINE_BYTES, -(-stop // _LINE_BYTES)
        packed = np.empty((last - first, _WIDTH), np.float32)
        done = first
        while done < last:
            done += self._fill(packed[done - first :], done)
        skipped = first * _LINE_BYTES
        return packed.reshape(-1).view(np.uint8)[start - skipped : stop - skipped]

    def _fill(self, packed: Array, start: int) -> int:
        """Write lines from ``start`` on to where ``packed`` begins; how many were of one kind."""
        lines, columns = self._matrix.shape
        panel, line = divmod(start, lines)
        whole = min(len(packed) // lines, columns // _WIDTH - panel) if line == 0 else 0
        if whole > 0:
            count = whole * lines
            within = self._matrix[:, panel * _WIDTH : (panel + whole) * _WIDTH]
            packed[:count].reshape(whole, lines, _WIDTH)[:] = within.reshape(
                lines, whole, _WIDTH
            ).transpose(1, 0, 2)
            return count
        count = min(len(packed), lines - line)
        within = self._matrix[line : line + count, panel * _WIDTH : (panel + 1) * _WIDTH]
        packed[:count, : within.shape[1]] = within
        packed[:count, within.shape[1] :] = 0
        return count


def pack_panels(array: Array, packing: Packing) -> Array:
    """The elements of a float32 tensor in panels, one-dimensional."""
    panels = Panels(array, packing)
    return panels.bytes_between(0, panels.nbytes).view("<f4")


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
