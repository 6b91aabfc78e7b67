"""Plans for pools: how channels, batch and field are split over tiles, as popnn plans them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from popc.cost.formulas.numbers import BYTES, VECTOR, ceil_div
from popc.cost.formulas.pooling import PoolWork, pooling, regroup_cycles
from popc.cost.planner.candidates import split_counts
from popc.target import Target
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["PoolPlan", "PoolProblem", "plan_pool"]

# Grains of channels in a group at most, and what a plan that has as many channels in a group as
# other ops like may take longer.
_MOST_GRAINS = 8
_PATIENCE = 4 / 3


@frozen
class PoolProblem:
    """A pool, or its gradient.

    Attributes:
        batch, channels: Of both tensors.
        results, operands: Sizes of the field of what is made, and of what goes through windows.
        kernel, strides, pads: Of the pool, for each axis; pads at the beginning.
        block: Channels of the operand that lie side by side.
        lanes: Kind of the elements.
        maximum, backward: Which vertex.
    """

    batch: int
    channels: int
    results: tuple[int, ...]
    operands: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    block: int
    lanes: str
    maximum: bool
    backward: bool


@frozen
class PoolPlan:
    """The part of the busiest tile, and what its vertex takes.

    Attributes:
        block: Channels in a group.
        results, operands: Elements of its results, and of what they are made from.
        compute: Cycles.
        tiles: That work.
    """

    block: int
    results: int
    operands: int
    compute: int
    tiles: int


@frozen
class _Parts:
    """Candidates: channels in a group, and sizes of a tile's part."""

    block: Array
    groups: Array
    batch: Array
    field: Sequence[Array]
    tiles: Array


def plan_pool(problem: PoolProblem, target: Target) -> PoolPlan:
    """The fastest plan, or if that is little slower one with groups that suit convolutions."""
    grain = VECTOR[problem.lanes]
    most = min(ceil_div(problem.block, grain), ceil_div(problem.channels, grain), _MOST_GRAINS)
    best, cycles = _best(problem, [grain * (size + 1) for size in range(max(most, 1))], target)
    liked = 16 if problem.lanes == "half" else 8
    if best.block < liked <= problem.channels:
        grouped, slower = _best(problem, [liked], target)
        if slower < cycles * _PATIENCE:
            return grouped
    return best


def _best(problem: PoolProblem, blocks: Sequence[int], target: Target) -> tuple[PoolPlan, float]:
    """The fastest plan with groups of so many channels, and the cycles that popnn expects."""
    parts = _candidates(problem, blocks, target.compute_tiles)
    compute = _compute(problem, parts)
    for axis, size in enumerate(problem.results):
        # A tile whose part is smaller may take longer, as workers share it less evenly.
        field = list(parts.field)
        field[axis] = np.where(size % field[axis] > 0, np.maximum(field[axis] - 1, 1), field[axis])
        smaller = _Parts(parts.block, parts.groups, parts.batch, field, parts.tiles)
        compute = np.maximum(compute, _compute(problem, smaller))
    bytes_ = _expected(problem, parts) * BYTES[problem.lanes]
    exchange = bytes_ // target.exchange.bytes_per_cycle
    cycles = compute + exchange + np.where(parts.block != problem.block, regroup_cycles(bytes_), 0)
    at = int(np.argmin(cycles))
    channels = int(parts.batch[at] * parts.groups[at] * parts.block[at])
    sizes = [int(size[at]) for size in parts.field]
    windows = prod(_window(problem, axis, size) for axis, size in enumerate(sizes))
    plan = PoolPlan(
        int(parts.block[at]),
        channels * prod(sizes),
        channels * windows,
        int(compute[at]),
        int(parts.tiles[at]),
    )
    return plan, float(cycles[at])


def _candidates(problem: PoolProblem, blocks: Sequence[int], tiles: int) -> _Parts:
    """Splits of all dimensions over at most so many tiles."""
    found: list[_Parts] = []
    axes = [split_counts(size, tiles, 24) for size in problem.results]
    batches = split_counts(problem.batch, tiles, 12)
    for size in blocks:
        count = ceil_div(problem.channels, size)
        grids = np.meshgrid(split_counts(count, tiles, 24), batches, *axes, indexing="ij")
        splits = [grid.ravel() for grid in grids]
        product = np.prod(splits, axis=0)
        kept = [split[product <= tiles] for split in splits]
        groups, batch, *field = kept
        found.append(
            _Parts(
                np.full(len(groups), size),
                ceil_div(count, groups),
                ceil_div(problem.batch, batch),
                [ceil_div(n, part) for n, part in zip(problem.results, field, strict=True)],
                product[product <= tiles],
            )
        )
    return _Parts(
        np.concatenate([parts.block for parts in found]),
        np.concatenate([parts.groups for parts in found]),
        np.concatenate([parts.batch for parts in found]),
        [np.concatenate(axis) for axis in zip(*(parts.field for parts in found), strict=True)],
        np.concatenate([parts.tiles for parts in found]),
    )


def _compute(problem: PoolProblem, parts: _Parts) -> Array:
    strides = problem.strides if problem.backward else (1,) * len(problem.strides)
    # Backwards, a row is reached only by those rows of the window that stride onto it.
    outer = [ceil_div(k, s) for k, s in zip(problem.kernel[:-1], strides[:-1], strict=True)]
    work = PoolWork(
        parts.batch * np.prod(parts.field[:-1], axis=0, dtype=np.int64),
        parts.field[-1],
        parts.groups,
        parts.block // VECTOR[problem.lanes],
        prod(outer) * problem.kernel[-1],
        strides[-1],
    )
    return np.asarray(pooling(work, maximum=problem.maximum, backward=problem.backward))


def _expected(problem: PoolProblem, parts: _Parts) -> Array:
    """Elements of operands that popnn's planner thinks a tile needs."""
    elements = parts.batch * parts.groups * parts.block
    for size, kernel, pad in zip(parts.field, problem.kernel, problem.pads, strict=True):
        before = kernel - 1 - pad if problem.backward else pad
        elements = elements * size * max(kernel - before, 0)
    return elements


def _window(problem: PoolProblem, axis: int, size: int) -> int:
    """Elements along an axis of the operands that ``size`` results are made from."""
    kernel, stride = problem.kernel[axis], problem.strides[axis]
    reach = (size + kernel - 2) // stride + 1 if problem.backward else (size - 1) * stride + kernel
    return min(reach, problem.operands[axis])
