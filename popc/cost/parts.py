"""The part of a reduction that the busiest tile has."""

from __future__ import annotations

from math import prod

from popc.cost.formulas.numbers import ceil_div, round_up
from popc.cost.mapping import Layout
from popc.cost.planner import Dims, ReductionProblem

__all__ = ["part_of"]


def part_of(
    dims: Dims, share: int, layout: Layout, lanes: tuple[str, str], *, maximum: bool = False
) -> ReductionProblem:
    """The reduction of a tensor of which a tile has ``share`` elements, lying as ``layout`` says.

    ``lanes``: kinds of its elements and of the results.
    Rows that a matrix product has left lie in blocks of columns, and tiles may share them; of what
    lies row by row a tile has elements in a row.
    """
    outputs = prod(size for size, reduced in dims if not reduced)
    depth = prod(size for size, reduced in dims if reduced)
    rows_reduced = [reduced for _, reduced in dims] == [False, True]
    if rows_reduced and layout.rows and not layout.turned:
        widths: tuple[int, ...] = (min(layout.rows, outputs),)
        run = min(layout.block, ceil_div(depth, layout.row_parts))
        rows, spread = round_up(ceil_div(depth, layout.row_parts), run), layout.row_parts
    else:
        if layout.tiles:
            share = round_up(share, max(layout.block, 1))
        widths, rows, run = _in_a_row(dims, share)
        spread = min(ceil_div(depth * sum(widths), share), depth)
    return ReductionProblem(outputs, widths, rows, run, spread, *lanes, maximum)


def _in_a_row(dims: Dims, share: int) -> tuple[tuple[int, ...], int, int]:
    """Parts of ``share`` elements in a row: groups of columns, elements of each, and side by side.

    If a tile's part does not end with a row, it has more elements of some columns than of others,
    which are no neighbours for popops then.
    """
    columns = rows = run = 1
    left, inner = share, True
    for size, reduced in reversed(dims):
        taken = min(size, left)
        left = ceil_div(left, size)
        if reduced:
            rows *= taken
            run = rows if inner else run
        else:
            columns *= taken
            inner = False
    width = dims[-1][0] if dims and not dims[-1][1] else 1
    rest = share % width
    groups = columns // width if width > 1 else 0
    if not rest or rows == 1 or not groups:
        return (columns,), rows, run
    return (width - rest, rest) * groups, rows, run
