"""Copies, casts of layout, slices, gathers, exchange."""

from __future__ import annotations

from popc.cost.formulas.numbers import WORKERS, Count, ceil_div

__all__ = [
    "copy_cycles",
    "dynamic_slice",
    "exchange_cycles",
    "multi_slice",
    "multi_update",
    "random_cycles",
    "rearrange_cycles",
    "row_cycles",
    "smallest_piece",
    "transpose_cycles",
    "transpose_grain",
]

# Poplin's regression over ten thousand random rearrangements: what a copy takes, and what every
# 10,000 bytes add, by the size that all of its pieces are multiples of.  Bytes that move one by one
# are not in it: 5,832 of them, in rows of 729, took 52,333 cycles (ipu-stack's recorded profile).
_COPY_START = 587
_COPY_CYCLES = {8: 4_404, 4: 31_250, 2: 51_484, 1: 88_728}
# An element of 16 bits that goes where its neighbours do not: a load and a store, and the 20
# instructions that popops' multiUpdate takes for merging it with the other half of its word.
_SUBWORD_CYCLES = 2 + 20


def exchange_cycles(bytes_: Count, bytes_per_cycle: Count) -> Count:
    """Receiving ``bytes_`` on the busiest tile."""
    return ceil_div(bytes_, bytes_per_cycle)


def smallest_piece(row_bytes: int) -> int:
    """The size, 8, 4, 2 or 1 bytes, that rows of ``row_bytes`` side by side can be cut into."""
    return next(size for size in _COPY_CYCLES if row_bytes % size == 0)


def copy_cycles(*parts: tuple[Count, int]) -> Count:
    """Giving data of a tile another order, as measured.

    ``parts``: bytes, and whether they move in pieces of 8, 4, 2 or 1 bytes.
    """
    if not parts:
        return 0
    moved = (ceil_div(bytes_ * _COPY_CYCLES[piece], 10_000) for bytes_, piece in parts)
    return _COPY_START + sum(moved)


def row_cycles(elements: Count, length: int, element_bytes: int) -> Count:
    """Joining rows of ``length`` elements of which a tile has received blocks of columns.

    Blocks are copied whole, in pieces as large as rows are multiples of.  Rows of an odd number of
    halves begin within words: stores are 32 bits wide, so every one reads the word first.
    """
    if element_bytes < 4 and length * element_bytes % 4:
        return _COPY_START + WORKERS * ceil_div(elements, WORKERS) * _SUBWORD_CYCLES
    return copy_cycles((elements * element_bytes, smallest_piece(length * element_bytes)))


def transpose_grain(element_bytes: int) -> int:
    """Rows and columns that the vertices for transposing take at once; 0 if there are none."""
    return {1: 8, 2: 4, 4: 2}.get(element_bytes, 0)


def transpose_cycles(elements: Count, rows: int, columns: int, element_bytes: int) -> Count:
    """Transposing matrices of ``rows`` by ``columns``, whole grains of both, that workers share.

    Matrices of halves are read and written 64 bits at a time.  Bytes are read 32 bits at a time and
    shuffled: 24 instructions for 8 by 8 of them, and 29 for the first ones of a column.
    """
    grain = transpose_grain(element_bytes)
    each = 4 if grain == 4 else 3  # cycles of a worker for a grain
    down, across = rows // grain, columns // grain
    count = ceil_div(ceil_div(elements, rows * columns), WORKERS)
    if element_bytes == 1:
        return 7 + WORKERS * (29 + count * (18 + across * (29 + 24 * (down - 1))))
    if down == across == 1:
        worker = 37 + count * each
    elif across == 1:
        worker = 27 + count * (35 + each * max(down - 2, 0))
    else:
        worker = 29 + count * (18 + down * (12 + each * (across - 2)))
    return 7 + WORKERS * worker


def rearrange_cycles(bytes_: Count, *, element_bytes: int, memcpy: int, aligned: bool) -> Count:
    """The cycles that poplin's planner expects for reordering the data of a tile.

    It decides by this; what the copies take when they run is `copy_cycles`.

    ``aligned``: the innermost dimension is a multiple of a 64-bit word.
    """
    return ceil_div(bytes_ * 5, min(memcpy, element_bytes) * (4 if aligned else 3))


def dynamic_slice(elements: Count, slices: Count, vector: int) -> Count:
    """DynamicSlice1D, or an update: ``slices`` pieces of ``elements`` each."""
    per_worker = ceil_div(elements, WORKERS)
    return 25 + WORKERS * (39 + (24 + 2 * (per_worker // vector)) * slices)


def multi_slice(
    in_range: Count, out_of_range: Count, length: Count, *, element_bytes: int
) -> Count:
    """MultiSlice: rows of ``length`` elements by index; counts are those of one worker."""
    vector, cycles = (4, 3) if element_bytes == 1 else (2, 2)
    step = 19 + cycles * ceil_div(length, vector)
    return WORKERS * (30 + in_range * step + 8 * out_of_range)


def multi_update(in_range: Count, out_of_range: Count, length: Count, *, float_type: bool) -> Count:
    """MultiUpdateAdd: rows of ``length`` elements added by index."""
    atom, first, more = (1, 11, 2) if float_type else (2, 12, 0)
    row = first + (ceil_div(length, atom) - 1) * 3
    return WORKERS * (3 + 30 + 4 + more + in_range * row + 5 * out_of_range)


def random_cycles(elements: Count, lanes: str) -> Count:
    """poprand: random numbers for the elements of a tile."""
    return 4 + 23 * WORKERS + 4 * ceil_div(elements, 4 if lanes == "half" else 2)
