"""Convolutions without AMP: sliding windows, dot products, depthwise products, outer products."""

from __future__ import annotations

import numpy as np

from popc.cost.formulas.numbers import WORKERS, Count, ceil_div

__all__ = [
    "dot_product",
    "horizontal_mac",
    "outer_product",
    "slic",
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
    worker_rows = ceil_div(rows, WORKERS)
    steady = width - 5 if stride == 1 else 2 * (width - 3)
    row = np.where(width >= 5, 15 + np.maximum(steady, 0), 12) - int(float_partials)
    passes = 1 if chains == 4 else 2
    worker = 17 + 4 * more + worker_rows * (passes * row + 10 + 3 * int(float_partials))
    return 28 + groups * (15 + 8 * more + blocks * turns * (load + WORKERS * worker))


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
    per_worker = ceil_div(rows * width, WORKERS)
    items = np.maximum(ceil_div(per_worker, np.maximum(width, 1)), 1)
    row = ceil_div(per_worker, items)
    worker = 16 + items * (19 + row * (7 + out_channels * dot))
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
    # With fewer elements than workers these share the columns.
    sharing = np.maximum(WORKERS // np.maximum(outputs, 1), 1)
    taps = ceil_div(columns, sharing) - 1
    shared = ceil_div(outputs, WORKERS)
    entry = {4: 7 + 3 + 2 * f + 3 + 2 * taps, 8: 25 + 3 * taps, 16: 50 + 6 * taps}[lanes]
    inner = WORKERS * ({4: 18 + f, 8: 13, 16: 25}[lanes] + rows * shared * entry)
    zero = WORKERS * (4 + ceil_div(outputs * lanes, 2 if float_partials else 4))
    reduce = WORKERS * (10 - f + (7 + 2 * f + (1 + f) * (WORKERS - 1)) * shared)
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
