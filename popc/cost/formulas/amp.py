"""Convolutions on the units for accumulating matrix products (AMP).

A vertex holds weights for K input channels by U output channels in the units and lets the field
elements of K channels stream past: 4 cycles per element in half precision, 8 in single.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from popc.cost.formulas.numbers import WORKERS, Count, ceil_div, pick
from popc.cost.formulas.workers import share_rows
from popc_runtime.ground.frozen import frozen

__all__ = [
    "AmpTypes",
    "TileConv",
    "conv_1x1",
    "conv_nx1",
    "inner_1x1",
    "weight_load",
    "zero_partials",
]

# Instructions for loading weights of filters that are several rows high.
_HEIGHT_OVERHEAD = {1: 15, 2: 46, 4: 60}


@frozen
class AmpTypes:
    """Operand and result types, and the number of units that they leave.

    Attributes:
        float_inputs, float_partials: Whether these are 32 bits wide, not 16.
        quarter_inputs: Whether inputs are 8 bits wide.
    """

    units: int
    float_inputs: bool = False
    float_partials: bool = False
    quarter_inputs: bool = False

    @property
    def weights_per_unit(self) -> int:
        """Input channels whose weights one unit holds: 32 bytes of them."""
        return 8 if self.float_inputs else 32 if self.quarter_inputs else 16

    @property
    def cycles_per_element(self) -> int:
        """Issue slots of one field element of all channels that the units hold."""
        return 8 if self.float_inputs else 4

    @property
    def common_path(self) -> bool:
        """Half precision with single results, or with half ones on all units."""
        if self.float_inputs or self.quarter_inputs:
            return False
        return self.float_partials or self.units == 16


@frozen
class TileConv:
    """The convolution of one tile, in groups of channels as the units take them.

    Attributes:
        groups, in_groups, out_groups: Conv groups and groups of channels.
        passes: How often the units are filled for one group of output channels.
        rows, width: The field of the result; batches are rows.
        kernel_y, kernel_x: Kernel positions; rows of the filter that one load holds count once.
    """

    groups: Count
    in_groups: Count
    out_groups: Count
    rows: Count
    width: Count
    passes: int = 1
    kernel_y: Count = 1
    kernel_x: int = 1
    filter_height: int = 1


def weight_load(units: int, load_bytes: int) -> int:
    """Cycles for filling ``units`` with 32 bytes each."""
    return -(-units * 32 // load_bytes)


def _worker_1x1(types: AmpTypes, n: Count, *, zero: bool) -> Count:
    """Instructions of a worker of ConvPartial1x1 for ``n`` field elements."""
    z = int(zero)
    if types.quarter_inputs:
        return pick(n, 21, 35 - 5 * z, 40 - 5 * z, 44 - 5 * z + 4 * (n - 3))
    if types.common_path:
        step = 1 if zero else 2
        return pick(n, 20 + step, 31 + step, 40 + step, (37 if zero else 38) + 4 * (n - 3))
    if types.float_inputs:
        zc = 8 if types.units == 16 else 4
        full = 46 + z * (2 + zc * n) + 8 * (n - 3)
        return pick(n, 24, 47 + z * (2 + zc), 46 + z * (2 + 2 * zc), full)
    full = 41 + z * (2 + 2 * n) + 4 * (n - 3)
    return pick(n, 24, 39 + z * 4, 40 + z * 6, full)


def inner_1x1(types: AmpTypes, elements: Count, *, zero: bool, retention: int = 0) -> Count:
    """Cycles in which six workers pass ``elements`` field elements by the units once."""
    most = _worker_1x1(types, ceil_div(elements, WORKERS), zero=zero) - retention
    least = _worker_1x1(types, elements // WORKERS, zero=zero) - retention
    return np.maximum(WORKERS * most, WORKERS * least + 14)


def conv_1x1(types: AmpTypes, tile: TileConv, load_bytes: int) -> Count:
    """ConvPartial1x1: a convolution of one kernel position, or a matrix product."""
    load = weight_load(types.units, load_bytes)
    elements = tile.rows * tile.width
    if types.quarter_inputs:
        first = inner_1x1(types, elements, zero=True)
        step = 14 * WORKERS + 11 + 6 * WORKERS + load
        later = 11 * WORKERS + 6 + 6 * WORKERS + load + inner_1x1(types, elements, zero=False)
        per_out = WORKERS * 10 + 6 * WORKERS + step + first + (tile.in_groups - 1) * later
        return 46 + tile.groups * (2 * WORKERS + 9 + tile.out_groups * per_out)
    # Workers keep part of their state from call to call: the first one, and the first one for
    # each group of input channels, have to set it up.
    c = int(types.common_path)
    kept, renewed = 7 * c, 3 * c
    first = inner_1x1(types, elements, zero=True, retention=kept)
    later = inner_1x1(types, elements, zero=False, retention=kept)
    setup = WORKERS * (kept + renewed * (tile.in_groups * tile.groups - 1))
    rest = (tile.in_groups - 1) * (
        16 - c + tile.out_groups * (19 + tile.passes * (6 + load + later))
    )
    start = 11 + tile.out_groups * (19 - c + tile.passes * (7 + load + first))
    return 50 + setup + tile.groups * (12 + c + rest + start)


def _item_nx1(types: AmpTypes, n: Count) -> Count:
    """Instructions of a worker of ConvPartialNx1 for a row of ``n`` elements."""
    extra = types.units == (8 if types.float_partials else 16)
    if types.quarter_inputs:
        return 22 + pick(n, 0, 17, 22, 29 + 4 * (n - 3))
    begin = 3 - 9  # the pointer to it, less what workers remember from call to call
    if types.float_inputs:
        return begin + pick(n, 17, 33, 44, 45 + 8 * (n - 3))
    return begin + pick(n, 17, 29, 33 + int(extra), 34 + 4 * (n - 3))


def conv_nx1(types: AmpTypes, tile: TileConv, load_bytes: int) -> Count:
    """ConvPartialNx1: any kernel; workers share the rows of the field."""
    if tile.filter_height == 4:
        load_bytes = min(load_bytes, 8)
    load = weight_load(types.units, load_bytes)
    most, least = share_rows(tile.rows, tile.width, partial(_item_nx1, types))
    worker = 18 if types.quarter_inputs else 17 + int(not types.float_partials)
    slowest = np.maximum(WORKERS * (worker + most), WORKERS * (worker + least) + 9)
    positions = tile.kernel_y * tile.kernel_x
    if types.quarter_inputs:
        row = WORKERS * 20 + 16 + load + (tile.kernel_x - 1) * (WORKERS * 13 + 8 + load)
        inner = tile.kernel_y * row + positions * tile.passes * slowest
        per_out = WORKERS * 8 + 10 + tile.in_groups * (WORKERS * 8 + 13 + inner)
        work = tile.groups * (WORKERS * 5 + 7 + tile.out_groups * per_out)
        return 83 + work + zero_partials(types, tile)
    passes = tile.passes * (load + _HEIGHT_OVERHEAD[tile.filter_height] + 3)
    inner = tile.kernel_y * (14 + tile.kernel_x * (12 + passes))
    inner = inner + positions * tile.passes * slowest
    outs = tile.out_groups
    setup = 109 + 9 * WORKERS + WORKERS * (9 if types.float_inputs else 10)
    zeroing = tile.groups * (17 * outs + 6 * (outs - 1) + 1) + 6 * (tile.groups - 1) + 1
    work = tile.groups * (16 + tile.in_groups * (14 + outs * (14 + inner)))
    return setup + zeroing + work + zero_partials(types, tile)


def zero_partials(types: AmpTypes, tile: TileConv) -> Count:
    """Cycles for clearing the partial results that a ConvPartialNx1 adds to."""
    vector = 2 if types.float_partials else 4
    elements = ceil_div(tile.rows * tile.width * types.units * tile.passes, WORKERS)
    worker = ceil_div(elements, vector) + 5
    return WORKERS * worker * tile.out_groups * tile.groups
