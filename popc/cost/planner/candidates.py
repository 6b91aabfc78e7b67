"""Splits to try, as arrays with one entry per candidate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popc.cost.formulas.numbers import Count, ceil_div
from popc.cost.planner.methods import Method, VertexKind
from popc.cost.planner.problem import ConvProblem
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["Candidates", "candidates_for", "split_counts"]

# Candidates that leave more of the useful tiles idle than this are not tried.
_LEAST_USE = 0.3


@frozen
class Candidates:
    """Numbers of parts, as in `popc.cost.planner.plan.Splits`; arrays of one length, or numbers."""

    groups: Count
    batch: Count
    rows: Count
    columns: Count
    in_channels: Count
    out_channels: Count
    kernel: Count
    serial_in: int = 1
    serial_out: int = 1

    @property
    def field(self) -> Count:
        """Parts of batch and field."""
        return self.batch * self.rows * self.columns

    @property
    def tiles(self) -> Count:
        """Tiles that work."""
        channels = self.in_channels * self.out_channels
        return self.groups * self.field * channels * self.kernel


def split_counts(size: int, most: int, keep: int) -> list[int]:
    """Numbers of parts, up to ``most``, that cut ``size`` into parts of different sizes.

    Of all numbers that lead to the same size of the largest part, the smallest.  At most ``keep``
    of them, evenly spread over the orders of magnitude; 1 and the largest are always there.
    """
    counts: list[int] = []
    parts = 1
    while parts <= min(size, most):
        largest = ceil_div(size, parts)
        counts.append(ceil_div(size, largest))
        if largest == 1:
            break
        parts = ceil_div(size, largest - 1)
    if len(counts) <= keep:
        return counts
    places = np.geomspace(1, counts[-1], keep)
    nearest = {counts[int(np.argmin(np.abs(np.log(np.array(counts) / at))))] for at in places}
    return sorted(nearest)


def candidates_for(
    problem: ConvProblem, method: Method, tiles: int, serial: tuple[int, int] = (1, 1)
) -> Candidates:
    """Splits over at most ``tiles`` tiles that keep most of those busy that could be."""
    serial_in, serial_out = serial
    in_groups = ceil_div(ceil_div(problem.in_channels, method.in_group), serial_in)
    out_groups = ceil_div(ceil_div(problem.out_channels, method.out_group), serial_out)
    whole = method.kind in {VertexKind.SLIC, VertexKind.OUTER_PRODUCT}
    choices = [
        split_counts(ceil_div(problem.groups, method.conv_group), tiles, 20),
        split_counts(problem.batch, tiles, 12),
        split_counts(problem.field[0], tiles, 16),
        split_counts(problem.field[1], tiles, 12 if problem.field[0] > 1 else 64),
        # Some vertices take all channels of a group at once.
        [in_groups] if whole else split_counts(in_groups, tiles, 20),
        [out_groups] if method.kind is VertexKind.SLIC else split_counts(out_groups, tiles, 32),
        [1],
    ]
    room = int(np.prod([float(values[-1]) for values in choices]))
    kernel = ceil_div(problem.kernel[0], method.filter_height)
    if method.kind in {VertexKind.AMP, VertexKind.VMAC} and kernel > 1 and room < 2 * tiles:
        choices[-1] = split_counts(kernel, tiles, 8)
        room *= kernel
    columns = _products(choices, tiles, _LEAST_USE * min(tiles, room))
    groups, batch, rows, width, ins, outs, taps = columns
    return Candidates(groups, batch, rows, width, ins, outs, taps, serial_in, serial_out)


def _products(choices: Sequence[Sequence[int]], most: int, least: float) -> list[Array]:
    """All combinations with a product from ``least`` to ``most``, one array per choice.

    If there are none, those with the largest product that is small enough.
    """
    product = np.ones(1, np.int64)
    columns: list[Array] = []
    for values in choices:
        options = np.array(values, np.int64)
        product = np.multiply.outer(product, options).ravel()
        columns = [np.repeat(column, len(options)) for column in columns]
        columns.append(np.tile(options, len(product) // len(options)))
        small = product <= most
        product, columns = product[small], [column[small] for column in columns]
    enough = product >= min(least, product.max())
    return [column[enough] for column in columns]
