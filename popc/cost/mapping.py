"""The mapping of tensors to tiles."""

from __future__ import annotations

from collections.abc import Mapping as Table

import numpy as np

from popc.ir import Tensor
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = [
    "LEFT",
    "LINEAR",
    "WEIGHTS",
    "WHOLE_ROWS",
    "Layout",
    "Mapping",
    "cast_lanes_of",
    "device_bytes",
    "lanes_of",
    "layout_of",
    "linear_mapping",
    "placed_for_first",
]

_MIN_BYTES_PER_TILE = 128  # of poplibs' linear mapping: small tensors lie on few tiles

# 64-bit numbers exist on the device only as 32-bit ones; there is no bfloat16, but it is as wide
# as half precision.
_NARROWED = {DType.INT64: 4, DType.UINT64: 4, DType.FLOAT64: 4}


def device_bytes(dtype: DType) -> int:
    """Bytes of an element on the device."""
    return _NARROWED.get(dtype, dtype.itemsize)


def lanes_of(dtype: DType) -> str:
    """The kind of elements as which vertices treat ``dtype``."""
    if dtype in {DType.FLOAT16, DType.BFLOAT16}:
        return "half"
    return "float" if dtype.is_float else "int"


def cast_lanes_of(dtype: DType) -> str:
    """The same for casts, which alone know elements of eight bits."""
    return "quarter" if dtype.is_float8 else lanes_of(dtype)


@frozen
class Mapping:
    """Consecutive runs of elements on consecutive tiles, from tile ``first`` on, cyclically.

    Attributes:
        elements: Of the tensor.
        run: On each tile but the last one in use.
        element_bytes: Bytes of one.
        tiles: Tiles that there are.
        start: Number of the first of these on the chip.
    """

    elements: int
    run: int
    element_bytes: int
    tiles: int
    first: int = 0
    start: int = 0

    @property
    def used(self) -> int:
        """Tiles that hold something."""
        return -(-self.elements // self.run) if self.elements else 0

    @property
    def busiest(self) -> int:
        """Bytes on the busiest tile."""
        return min(self.run, self.elements) * self.element_bytes

    def add_to(self, totals: Array, sign: int = 1) -> None:
        """Add the bytes of every tile to ``totals``, or with ``sign`` -1 take them off."""
        used = self.used
        if used == 0:
            return
        totals = totals[self.start : self.start + self.tiles]
        full, bytes_ = used - 1, sign * self.run * self.element_bytes
        end = self.first + full
        totals[self.first : min(end, self.tiles)] += bytes_
        if end > self.tiles:
            totals[: end - self.tiles] += bytes_
        rest = self.elements - full * self.run
        totals[end % self.tiles] += sign * rest * self.element_bytes

    def on(self, tile: int) -> int:
        """Bytes on one tile."""
        tile -= self.start
        if not 0 <= tile < self.tiles:
            return 0
        begin = (tile - self.first) % self.tiles * self.run
        return min(max(self.elements - begin, 0), self.run) * self.element_bytes

    def by_tile(self) -> Array:
        """Bytes on every tile."""
        totals = np.zeros(self.tiles, np.int64)
        self.add_to(totals)
        return totals


def linear_mapping(
    elements: int, dtype: DType, tiles: int, *, first: int = 0, grain: int = 0
) -> Mapping:
    """The default: whole grains, 128 bytes or more on a tile, as evenly as that allows.

    ``grain`` is the number of elements that stay together; by default those of a 64-bit word.
    """
    size = device_bytes(dtype)
    unit = grain or max(8 // size, 1)
    smallest = max(-(-_MIN_BYTES_PER_TILE // (size * unit)), 1)
    grains = -(-elements // unit)
    run = max(-(-grains // tiles), smallest) * unit
    return Mapping(elements, run, size, tiles, first % tiles)


@frozen
class Layout:
    """The distribution of the elements of a tensor, as far as costs depend on it.

    Attributes:
        key: Tensors of equal keys and shapes lie alike: no exchange brings them together.
        tiles: The number of tiles in use; 0 for the linear mapping's.
        block: Channels lie next to each other in blocks of so many, as products leave them; 0 if
            the tensor lies row by row.
        turned: The last two axes have changed places since, so that matrix products find their
            second operand as they want it; channels are the second last axis.
        placed: It lies as the product wants it that reads it first: weights.
        left: As the first operand of that.
        row_parts: Of the result of a matrix product, the tiles that share a row.
        rows: And the rows of which a tile has some elements.
        image: Channels are the second axis, and the outermost and the innermost one in memory.
        apart: Rows have been brought together on tiles, and each begins with a word of 64 bits.
    """

    key: str
    tiles: int = 0
    block: int = 0
    turned: bool = False
    placed: bool = False
    left: bool = False
    row_parts: int = 1
    rows: int = 0
    image: bool = False
    apart: bool = False


LINEAR = Layout("linear")
WEIGHTS = Layout("weights", placed=True)
WHOLE_ROWS = Layout("rows", apart=True)
LEFT = Layout("left operand", placed=True, left=True)
_PRODUCTS = frozenset({"Gemm", "MatMul"})


def layout_of(layouts: Table[Tensor, Layout], tensor: Tensor) -> Layout:
    """The layout of a tensor, of those that ops have given theirs."""
    layout = layouts.get(tensor)
    if layout is not None:
        return layout
    return placed_for_first(tensor) if tensor.kind.outlasts_runs else LINEAR


def placed_for_first(tensor: Tensor) -> Layout:
    """The layout of what the host, or a program at load, lays out as its first reader wants it."""
    first = next(iter(tensor.uses), None)
    is_left = first is not None and first.op_type in _PRODUCTS and first.inputs[0] is tensor
    return LEFT if is_left else WEIGHTS
