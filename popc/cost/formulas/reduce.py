"""Reductions: of partial results of convolutions, and along axes."""

from __future__ import annotations

from popc.cost.formulas.numbers import VECTOR, WORKERS, Count, ceil_div

__all__ = ["continuous", "conv_reduce", "irregular", "strided"]


def conv_reduce(
    outputs: Count, depth: Count, *, float_partials: bool, float_output: bool, fast: bool = False
) -> Count:
    """ReduceAdd of poplin: ``depth`` partial results of each of ``outputs``.

    Args:
        outputs: Results on the tile.
        depth: Partial results of each.
        float_partials, float_output: Whether they are 32 bits wide.
        fast: One contiguous operand in interleaved memory instead of a list of pointers.
    """
    width = 4 if float_partials else 8
    vector = 2 if float_partials else 4
    if fast:
        ends = {(1, 1): 8, (1, 0): 7, (0, 1): 10, (0, 0): 9}
        end = ends[int(float_partials), int(float_output)]
        loops = ceil_div(ceil_div(outputs, width), WORKERS)
        return 33 + WORKERS * (20 + (width // (2 * vector) * depth + end) * loops)
    end = (7 if float_output else 6) if float_partials else 9 if float_output else 8
    loops = ceil_div(ceil_div(outputs, width), WORKERS)
    return WORKERS * (32 + ((width // vector + 1) * depth + end) * loops)


def strided(
    outputs: Count, rows: Count, lanes: str, *, result: str, maximum: bool = False
) -> Count:
    """A worker that adds up ``rows`` rows of ``outputs`` columns, 64 bits of each at a time.

    popops' getCyclesEstimateForStridedReduce.
    """
    if lanes == "half":
        store = 1 + (6 if result != "half" and not maximum else 7)
    else:
        store = (2 if maximum else 3) + 2
    return 15 + ceil_div(outputs, VECTOR[lanes]) * (3 + store + 3 + (rows - 1))


def continuous(outputs: Count, depth: Count, lanes: str) -> Count:
    """A worker that adds up ``outputs`` rows of ``depth`` elements side by side.

    popops' getCycleEstimateReduceAllRegionsContinuous.
    """
    return 17 + outputs * (depth // VECTOR[lanes] + 12) + 2 * (depth % 2)


def irregular(outputs: int, rows: int, lanes: str, *, result: str, maximum: bool = False) -> int:
    """The same as `strided`, of columns that do not fill 64 bits.

    popops' getCyclesEstimateForReduce, of operands in one piece.  What is left of whole
    accumulators is done in parts, each half as wide as the one before.
    """
    adds = int(not maximum)
    width = VECTOR[lanes] << adds
    checks = width.bit_length() - 1
    cycles = 7 + 3 + 23 + 16 + 6 + 2 * checks + 2
    parts = [(width, outputs // width)]
    parts += [(1 << bit, outputs >> bit & 1) for bit in range(checks)]
    for size, times in parts:
        whole = size == width
        begin = (5 if whole else 4) if adds else 3 if whole else 2
        store = 2 * min(size, VECTOR[result]) + adds
        loads = size // min(size, VECTOR[lanes])
        load = (2 * adds if whole else 0) + 2 + loads + 3
        cycles += times * (begin + store + int(whole) + 10 + rows * load)
    return cycles
