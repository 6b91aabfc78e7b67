"""Convolutions without AMP: sliding windows, dot products, depthwise products, outer products."""

from __future__ import annotations

from functools import partial

import numpy as np

from popc.cost.formulas.numbers import WORKERS, Count, ceil_div, pick
from popc.cost.formulas.workers import share_rows

__all__ = [
    "dot_product",
    "horizontal_mac",
    "outer_product",
    "slic",
    "slic_quarter",
    "vertical_mac",
    "winograd_data",
    "winograd_inverse",
    "winograd_kernel",
]


def slic(
    groups: Count,
    blocks: Count,
    rows: Count,
    width: Count,
    *,
    channels: int,
    lanes: int = 0,
    stride: int = 1,
    float_partials: bool = False,
    chains: int = 2,
) -> Count:
    """ConvPartial1x4SLIC.

    Args:
        groups: Groups of ``lanes`` conv groups.
        blocks: Kernel positions in blocks of four along x.
        rows, width: The field of the result.
        channels: Input, and output, channels of a conv group: 1, 2 or 4.
        lanes: Conv groups side by side; as many as make four channels, or 8 or 16 of one channel.
        stride: Along x, 1 or 2.
        float_partials: Whether results are 32 bits wide.
        chains: Chains of units in use, 2 or 4; with 2, inputs pass twice.
    """
    per_group = lanes or 4 // channels
    turns = max(per_group * channels // 4, 1)
    more = int(turns > 1)
    each = 12 if per_group == 2 else 10 + more
    load = 18 + 16 if per_group == 1 else 9 + 6 + WORKERS * each + 6 + 16
    passes = 1 if chains == 4 else 2
    row = partial(_slic_row, stride=stride, passes=passes, float_partials=float_partials)
    start = 17 + 4 * more
    first = WORKERS * (start + share_rows(rows, width, partial(row, zeroing=True))[0])
    later = WORKERS * (start + share_rows(rows, width, partial(row, zeroing=False))[0])
    # Beside the weights: pointers, the call of workers and its sync, what loops take.
    block = turns * (load + 27) + 21 if more else load + 26
    workers = turns * (first + (blocks - 1) * later)
    return 28 + groups * (21 + 8 * more + blocks * block + workers)


def _slic_row(n: Count, *, stride: int, passes: int, float_partials: bool, zeroing: bool) -> Count:
    """Instructions of a worker for ``n`` results in a row, which it may be the first to write."""
    if stride == 2:
        once = pick(n, 0, 13, 15, 15 + 2 * (n - 3))
    elif zeroing:
        once = pick(n, 0, 13, 15, 16, 17, 15 + n - 5)
    else:
        once = pick(n, 0, 13, 19, 20, 21, 15 + n - 5)
    wide = int(float_partials)
    return 10 + int(zeroing) + 3 * wide + passes * (once - wide)


def slic_quarter(groups: Count, blocks: Count, rows: Count, width: Count, stride: int) -> Count:
    """The same for elements of eight bits, eight channels of a conv group, in two passes."""
    row = partial(_slic_quarter_row, stride=stride)
    first = WORKERS * (20 + share_rows(rows, width, partial(row, zeroing=True))[0])
    later = WORKERS * (20 + share_rows(rows, width, partial(row, zeroing=False))[0])
    call = WORKERS * 6 + 32 + 6
    begin = call + WORKERS * 6 + 12 + first
    rest = (blocks - 1) * (call + WORKERS * 5 + 8 + later)
    return 43 + groups * (WORKERS * 13 + 15 + begin + rest)


def _slic_quarter_row(n: Count, *, stride: int, zeroing: bool) -> Count:
    """Instructions of a worker for ``n`` results in a row, which it may be the first to write."""
    if stride == 2:
        once = pick(n, 0, 10, 15, 13 + 2 * (n - 3))
    elif zeroing:
        once = pick(n, 0, 11, 15, 18, 21, 14 + n - 5)
    else:
        once = 18 + pick(n, 0, 9, 12, 16, 16, 12 + n - 5)
    return 24 + 2 * once


def dot_product(size: int, *, float_inputs: bool, float_partials: bool) -> int:
    """Cycles of a worker for the product of two vectors of ``size`` elements."""
    results = 2 if not float_inputs and not float_partials else 1
    width = 1
    while width < (2 if float_inputs else 4) and size % (2 * width) == 0:
        width *= 2
    full = width >= (2 if float_inputs else 4)
    cycles = 3 * results + int(results == 2) + 3 + 1
    cycles += (0 if full else results) + size // width * (1 if full else 2)
    return cycles - int(not float_inputs)


def horizontal_mac(
    groups: Count,
    in_groups: Count,
    out_groups: Count,
    rows: Count,
    width: Count,
    positions: Count,
    *,
    in_channels: int,
    out_channels: int,
    float_inputs: bool,
    float_partials: bool,
) -> Count:
    """ConvPartialHorizontalMac: a dot product for each result."""
    dot = dot_product(in_channels, float_inputs=float_inputs, float_partials=float_partials)
    # With 16-bit partial results a dot product makes those of two output channels.
    each = out_channels if float_inputs or float_partials else ceil_div(out_channels, 2)
    worker = 16 + share_rows(rows, width, lambda n: 19 + n * (7 + each * dot))[0]
    inner = WORKERS * (positions * worker + 16)
    outer = groups * (23 + in_groups * (15 + out_groups * (10 + inner)))
    return (58 if float_inputs else 65) + outer


def vertical_mac(
    groups: Count,
    in_channels: Count,
    outputs: Count,
    kernel: tuple[Count, int],
    *,
    lanes: int,
    float_partials: bool,
) -> Count:
    """ConvPartialVerticalMac: ``lanes`` (4, 8 or 16) conv groups side by side.

    A worker adds up a row of the kernel for an element of the result, in results of its own, which
    are added up at the end.  Input channels follow each other.

    Args:
        groups: Of ``lanes`` conv groups.
        in_channels: Of a conv group.
        outputs: Elements of a channel of the result.
        kernel: Rows and columns.
        lanes: 8 and 16 are there for 16-bit partial results only.
        float_partials: Whether results are 32 bits wide.
    """
    f = int(float_partials)
    rows, columns = kernel
    # Workers have the same number of elements, of the last one perhaps some columns only.
    parts = WORKERS // np.gcd(np.maximum(outputs, 1), WORKERS)
    share = ceil_div(outputs * parts, WORKERS)
    whole, rest = share // parts, share % parts
    start, entry, tap = {4: (18 + f, 13 + 2 * f, 2), 8: (13, 25, 3), 16: (25, 50, 6)}[lanes]
    some = np.where(rest > 0, entry + tap * (ceil_div(rest * columns, parts) - 1), 0)
    inner = WORKERS * (start + rows * (whole * (entry + tap * (columns - 1)) + some))
    zero = WORKERS * (4 + ceil_div(outputs * lanes, 2 if float_partials else 4))
    reduce = WORKERS * (10 - f + (7 + 2 * f + (1 + f) * (WORKERS - 1)) * ceil_div(outputs, WORKERS))
    return 61 + 14 + 26 + groups * (zero + 32 + in_channels * (24 + inner) + reduce)


def outer_product(width: Count, channels: Count, group: int, *, float_types: bool) -> Count:
    """OuterProduct: one input channel; ``width`` field elements, channels in groups."""
    groups, per_worker = ceil_div(channels, group), ceil_div(width, WORKERS)
    if float_types:
        fast, start = group >= 6 and group % 2 == 0, 11
        step = 6 + (group - 6) // 2 if fast else 10 + 2 * group
    else:
        fast, start = group >= 12 and group % 4 == 0, 10
        step = 6 + (group - 12) // 4 if fast else 10 + 5 * group // 2
    return WORKERS * (25 + groups * (start + per_worker * step))


def winograd_data(channels: Count, *, float_types: bool) -> Count:
    """Transforming a patch of the input, one worker."""
    return 13 + 56 * ceil_div(channels, 2 if float_types else 4)


def winograd_kernel(channels: Count, *, float_types: bool) -> Count:
    """Transforming a 3 by 3 kernel, one worker."""
    return 2 + 35 * ceil_div(channels, 2 if float_types else 4)


def winograd_inverse(channels: Count, *, float_types: bool) -> Count:
    """Transforming a patch of the result back, one worker."""
    return 15 + 30 * ceil_div(channels, 2 if float_types else 4)
