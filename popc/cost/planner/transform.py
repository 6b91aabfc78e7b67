"""Copies of what does not lie as vertices want it: what they take, and what poplin expects.

Vertices take inputs in blocks of input channels, and weights in blocks of output by input
channels.  Poplin's planner (ConvModel) expects copies of both, and of the result, wherever operands
change places or channels have to be padded, and a regrouping of results whose blocks are not those
that the next convolution takes.  What is copied when the plan runs is what does not lie in such
blocks already.  For gradients, and for many tiles, what has other elements than channels side by
side is transposed before, 64 bits at a time.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from popc.cost.formulas import movement
from popc.cost.formulas.numbers import BYTES, VECTOR, Count, ceil_div
from popc.cost.planner.candidates import Candidates
from popc.cost.planner.methods import Method, VertexKind, weights_per_unit
from popc.cost.planner.problem import ConvProblem, OperandLayout
from popc.cost.planner.steps import CandidateStep, Shares
from popc.target import Target

__all__ = ["copies_inputs", "copies_weights", "transform", "transpose"]


_MANY_READERS = 7  # more destinations than poplin lets copy by themselves


def copies_inputs(problem: ConvProblem, method: Method) -> bool:
    """True if inputs have to be copied before vertices get them."""
    return _copies(problem.inputs_lie, method, padded=_pads_inputs(problem, method))


def copies_weights(problem: ConvProblem, method: Method) -> bool:
    """True if weights have to be copied before vertices get them."""
    padded = _pads_inputs(problem, method) or _pads_outputs(problem, method)
    return _copies(problem.weights_lie, method, padded=padded)


def _copies(lie: OperandLayout, method: Method, *, padded: bool) -> bool:
    lies = lie.block * lie.groups == method.in_group * method.conv_group
    return not lie.placed and (padded or not lies)


def _run(lie: OperandLayout, problem: ConvProblem, method: Method) -> int:
    """Elements side by side, as vertices want them, of what has to be copied.

    Where kernel positions become channels, vertices for transposing make grains of these: poplin's
    getExpandDimsPlan takes as many positions before that as grains need.
    """
    channels = gcd(lie.block or problem.in_channels, method.in_group, problem.in_channels)
    grain = movement.transpose_grain(problem.element_bytes)
    if problem.expanded and grain and lie.across and lie.across % grain == 0:
        channels = max(channels, gcd(grain, method.in_group))
    groups = gcd(lie.groups, method.conv_group) if channels == method.in_group else 1
    return channels * groups


def _pads_inputs(problem: ConvProblem, method: Method) -> bool:
    return problem.in_channels % method.in_group != 0


def _pads_outputs(problem: ConvProblem, method: Method) -> bool:
    return problem.out_channels % method.out_group != 0


def transform(
    problem: ConvProblem,
    method: Method,
    splits: Candidates,
    shares: Shares,
    outputs: Count,
    target: Target,
) -> CandidateStep:
    """Copies of operands that do not lie as the plan wants them."""
    size = problem.element_bytes
    inputs, weights = _elements(problem, method, splits, shares)
    sizes = inputs * size, weights * size
    used = copies_inputs(problem, method), copies_weights(problem, method)
    expected = _expected(problem, method, (*sizes, outputs), target)
    parts: list[tuple[Count, int]] = []
    moved: Count = 0
    exchanges = 0
    turned_first = _transposed(problem, splits)
    sides = _sides(problem, method)
    for lie, bytes_, copied, first, side in zip(
        (problem.inputs_lie, problem.weights_lie), sizes, used, turned_first, sides, strict=True
    ):
        if copied and not (lie.straight and side and problem.swapped):
            run = _run(lie, problem, method)
            whole = np.where(first, bytes_, 0) if side else 0 if lie.turned else bytes_
            parts.append((whole, movement.smallest_piece(run * size)))
            parts.append((bytes_ - whole, movement.smallest_piece(size)))
            if not lie.block:  # blocks become others where they are
                moved, exchanges = moved + bytes_, 1
    if not parts:
        return CandidateStep("transform", expected=expected)
    payload = movement.exchange_cycles(moved, target.exchange.bytes_per_cycle)
    copy = movement.copy_cycles(*parts)
    return CandidateStep("transform", payload, copy, exchanges, launches=1, expected=expected)


def transpose(
    problem: ConvProblem, method: Method, splits: Candidates, shares: Shares, target: Target
) -> CandidateStep:
    """Transposing operands whose channels do not lie side by side, before they are copied."""
    sides, size = _sides(problem, method), problem.element_bytes
    cycles: Count = 0
    moved: Count = 0
    for elements, used, side in zip(
        _elements(problem, method, splits, shares), _transposed(problem, splits), sides, strict=True
    ):
        if side:
            own = movement.transpose_cycles(elements, side, method.in_group, size)
            cycles = cycles + np.where(used, own, 0)
            moved = moved + np.where(used, elements * size, 0)
    steps = np.where(np.asarray(cycles) > 0, 1, 0)
    payload = movement.exchange_cycles(moved, target.exchange.bytes_per_cycle)
    return CandidateStep("transpose", payload, cycles, steps, steps, expected=0)


def _elements(
    problem: ConvProblem, method: Method, splits: Candidates, shares: Shares
) -> tuple[Count, Count]:
    """Elements of inputs and weights on a tile before they are fetched.

    Tiles that share the kernel's rows read different rows of the input, but for what overlaps.
    """
    taps = shares.kernel_rows * method.filter_height
    read = problem.reach(0, shares.rows, taps)
    rows = problem.reach(0, shares.rows, problem.kernel[0])
    inputs = shares.inputs * splits.in_channels * splits.field * splits.groups
    inputs = ceil_div(inputs, read) * rows
    weights = shares.weights * splits.in_channels * splits.out_channels * splits.groups
    weights = weights * splits.kernel
    return ceil_div(inputs, splits.tiles), ceil_div(weights, splits.tiles)


def _transposed(problem: ConvProblem, splits: Candidates) -> tuple[Count, Count]:
    """True for inputs, and for weights, that poplin gives their order before tiles fetch them.

    It does where a pass changes the innermost axis, and for what many tiles fetch; what few fetch
    each of them copies.
    """
    backward = problem.backward
    inputs, weights = splits.out_channels, splits.field
    return backward | (inputs >= _MANY_READERS), backward | (weights >= _MANY_READERS)


def _sides(problem: ConvProblem, method: Method) -> tuple[int, int]:
    """Rows of the matrices in which inputs and weights may be transposed; 0 if they may not.

    Rows and channels have to come in whole grains of what vertices for that take at once.
    """
    grain = movement.transpose_grain(problem.element_bytes)
    if not grain or method.in_group % grain or problem.in_channels % grain:
        return 0, 0
    inputs = copies_inputs(problem, method) and problem.inputs_lie.turned
    weights = copies_weights(problem, method) and problem.weights_lie.turned
    sides = [
        gcd(others, method.in_group) if used else 0
        for used, others in ((inputs, problem.field[1]), (weights, problem.out_channels))
    ]
    inputs_side, weights_side = (0 if side % grain else side for side in sides)
    return inputs_side, weights_side


def _expected(
    problem: ConvProblem, method: Method, sizes: tuple[Count, Count, Count], target: Target
) -> Count:
    """Cycles, exchange included, that poplin's planner expects of copies and regrouping.

    ``sizes``: bytes of inputs and weights of a tile, elements of its results.
    """
    memcpy, speed = target.tile.memcpy_bytes_per_cycle, target.exchange.bytes_per_cycle
    swaps = problem.swapped is not (problem.product and target.conv.products_by_columns)
    together = problem.combined > 1
    moved = swaps or together or problem.expanded > 0
    pads, ends = _pads_inputs(problem, method), _pads_outputs(problem, method)
    cycles: Count = 0
    uses = (
        (moved or pads or copies_inputs(problem, method), sizes[0], problem.inputs_type),
        (moved or pads or ends or copies_weights(problem, method), sizes[1], problem.inputs_type),
        (
            (swaps and not problem.expanded) or ends or together,
            sizes[2] * BYTES[problem.output_type],
            problem.output_type,
        ),
    )
    channels = problem.in_channels, problem.in_channels, problem.out_channels
    for (used, bytes_, type_), count in zip(uses, channels, strict=True):
        if used:
            aligned = count % VECTOR[type_] == 0
            cycles = cycles + movement.exchange_cycles(bytes_, speed)
            cycles = cycles + movement.rearrange_cycles(
                bytes_, element_bytes=BYTES[type_], memcpy=memcpy, aligned=aligned
            )
    grouped = method.out_group == weights_per_unit(problem.inputs_type)
    if not uses[2][0] and not grouped and not problem.product and method.kind is VertexKind.AMP:
        cycles = cycles + movement.rearrange_cycles(
            uses[2][1],
            element_bytes=method.out_group * BYTES[problem.output_type],
            memcpy=memcpy,
            aligned=problem.out_channels % VECTOR[problem.output_type] == 0,
        )
    return cycles
