"""Reductions: of partial results of convolutions, and along axes."""

from __future__ import annotations

from popc.cost.formulas.numbers import VECTOR, WORKERS, Count, ceil_div

__all__ = ["conv_reduce", "reduce_continuous", "reduce_strided"]


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


def reduce_continuous(outputs: Count, depth: Count, lanes: str) -> Count:
    """Rows of ``depth`` elements to one each; ``outputs`` rows on the tile.

    If there are fewer rows than workers, workers share rows.
    """
    elements = ceil_div(outputs * depth, WORKERS)
    rows = ceil_div(outputs, WORKERS)
    return WORKERS * (10 + 7 + ceil_div(elements, VECTOR[lanes]) + 12 * rows)


def reduce_strided(outputs: Count, depth: Count, lanes: str) -> Count:
    """Columns: ``outputs`` on the tile, each the sum of ``depth`` rows."""
    post = 9 if lanes == "half" else 5
    vectors = ceil_div(ceil_div(outputs, WORKERS), VECTOR[lanes])
    return WORKERS * (16 + vectors * (3 + post + 3 + (depth - 1)))
