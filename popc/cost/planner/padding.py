"""Zeros that vertices need around what a tile has, which are copied there (after poplin).

Vertices that take several kernel positions at once, SLIC four along a row and AMP up to four rows,
want kernels of whole multiples of that, and inputs with their padding: poplin's
addTileLevelTransformEstimates says how many zeros a tile needs, and createConvPartialSlicVertex
copies them in an exchange of its own, from the tile that has the constant.
"""

from __future__ import annotations

from popc.cost.formulas.movement import exchange_cycles
from popc.cost.formulas.numbers import Count, ceil_div
from popc.cost.planner.methods import Method, VertexKind
from popc.cost.planner.problem import ConvProblem
from popc.cost.planner.steps import CandidateStep, Shares
from popc.target import Target

__all__ = ["pad", "padding_elements"]

_SLIC_WINDOW = 4


def pad(problem: ConvProblem, method: Method, shares: Shares, target: Target) -> CandidateStep:
    """The exchange that brings zeros, if a tile needs any."""
    zeros = padding_elements(problem, method, shares)
    if isinstance(zeros, int):
        return CandidateStep("pad")
    bytes_ = zeros * problem.element_bytes
    payload = exchange_cycles(bytes_, target.exchange.bytes_per_cycle)
    return CandidateStep("pad", payload, exchanges=(zeros > 0).astype(int), sources=1)


def padding_elements(problem: ConvProblem, method: Method, shares: Shares) -> Count:
    """Zeros that the busiest tile needs beside its inputs and weights; 0 if none does.

    Those between inputs among them, along axes of which a vertex takes several at once, and along
    both for SLIC.
    """
    window = _window(method)
    if window == (1, 1):
        return 0
    kernel = problem.kernel
    taps = [-size % step for size, step in zip(kernel, window, strict=True)]
    around = [
        extra + _outside(problem, axis) if step > 1 or method.kind is VertexKind.SLIC else 0
        for axis, (extra, step) in enumerate(zip(taps, window, strict=True))
    ]
    lanes = shares.groups * method.conv_group
    channels = shares.in_groups * method.in_group
    outs = shares.out_groups * method.out_group
    rows, columns = shares.rows, shares.columns
    real = [
        ceil_div(size, apart if step > 1 or method.kind is VertexKind.SLIC else 1)
        for size, apart, step in zip((rows, columns), problem.spread, window, strict=True)
    ]
    inputs = (rows + around[0]) * (columns + around[1]) - real[0] * real[1]
    weights = (kernel[0] + taps[0]) * (kernel[1] + taps[1]) - kernel[0] * kernel[1]
    return lanes * channels * (shares.batch * inputs + outs * weights)


def _window(method: Method) -> tuple[int, int]:
    """Kernel rows and columns that a vertex takes at once."""
    if method.kind is VertexKind.SLIC:
        return 1, _SLIC_WINDOW
    return method.filter_height, 1


def _outside(problem: ConvProblem, axis: int) -> int:
    """Rows, or columns, of padding: how far windows reach beyond the input."""
    reach = (problem.field[axis] - 1) * problem.strides[axis]
    reach += (problem.kernel[axis] - 1) * problem.dilations[axis] + 1
    return max(reach - problem.inputs[axis] * problem.spread[axis], 0)
