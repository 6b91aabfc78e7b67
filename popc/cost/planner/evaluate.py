"""The costs of candidates: cycles of each step, and memory (after poplin's ConvModel)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from popc.cost.formulas import elementwise, movement, reduce
from popc.cost.formulas.amp import AmpTypes, TileConv, conv_1x1, conv_nx1
from popc.cost.formulas.mac import (
    horizontal_mac,
    outer_product,
    slic,
    slic_quarter,
    vertical_mac,
)
from popc.cost.formulas.numbers import BYTES, VECTOR, Count, ceil_div
from popc.cost.planner.candidates import Candidates
from popc.cost.planner.methods import Method, VertexKind, slic_chains
from popc.cost.planner.padding import pad, padding_elements
from popc.cost.planner.problem import ConvProblem, OperandLayout
from popc.cost.planner.steps import CandidateStep, Shares, taken
from popc.cost.planner.transform import copies_inputs, copies_weights, transform, transpose
from popc.target import Conv, Target
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["Costs", "evaluate", "shares_of"]

_LEAST_BYTES = 128  # of a tensor on a tile, if it has them


def shares_of(problem: ConvProblem, method: Method, splits: Candidates) -> Shares:
    """The work of the busiest tile."""
    groups = ceil_div(ceil_div(problem.groups, method.conv_group), splits.groups)
    in_groups = ceil_div(problem.in_channels, method.in_group)
    out_groups = ceil_div(problem.out_channels, method.out_group)
    in_groups = ceil_div(ceil_div(in_groups, splits.serial_in), splits.in_channels)
    out_groups = ceil_div(ceil_div(out_groups, splits.serial_out), splits.out_channels)
    rows = ceil_div(problem.field[0], splits.rows)
    columns = ceil_div(problem.field[1], splits.columns)
    kernel_rows = ceil_div(ceil_div(problem.kernel[0], method.filter_height), splits.kernel)
    batch = ceil_div(problem.batch, splits.batch)
    lanes = groups * method.conv_group
    height = problem.reach(0, rows, kernel_rows * method.filter_height)
    width = problem.reach(1, columns, problem.kernel[1])
    channels = in_groups * method.in_group
    outs = out_groups * method.out_group
    taps = kernel_rows * method.filter_height * problem.kernel[1]
    return Shares(
        groups,
        batch,
        rows,
        columns,
        in_groups,
        out_groups,
        kernel_rows,
        inputs=lanes * batch * height * width * channels,
        weights=lanes * channels * outs * taps,
        partials=lanes * batch * rows * columns * outs,
    )


def _met(problem: ConvProblem, method: Method, shares: Shares) -> tuple[Count, Count]:
    """Rows and columns of results of a tile that a kernel position meets.

    For vertices that take several rows of the kernel at once there are zeros between rows.
    """
    rows = ceil_div(shares.rows, problem.spread[0] if method.filter_height == 1 else 1)
    return shares.batch * rows, ceil_div(shares.columns, problem.spread[1])


@frozen
class Costs:
    """Steps, cycles to compare plans by, and temporary bytes; arrays over candidates."""

    steps: tuple[CandidateStep, ...]
    cycles: Count
    temporary: Count
    shares: Shares
    outputs: Count

    def taken(self, indices: Array) -> Costs:
        """The costs of some candidates only."""
        steps = tuple(taken(step, indices) for step in self.steps)
        return replace(taken(self, indices), steps=steps, shares=taken(self.shares, indices))


def evaluate(problem: ConvProblem, method: Method, splits: Candidates, target: Target) -> Costs:
    """The costs of every candidate."""
    shares = shares_of(problem, method, splits)
    depth = splits.in_channels * splits.kernel
    outputs = ceil_div(shares.partials, depth)
    steps = [
        _slice(problem, splits, shares),
        transpose(problem, method, splits, shares, target),
        transform(problem, method, splits, shares, outputs, target),
        pad(problem, method, shares, target),
        _convolve(problem, method, splits, shares, target),
        *_reduce(problem, shares, depth, target),
        _cast(problem, depth, outputs),
        _update(problem, splits, outputs),
    ]
    steps = [_repeated(step, splits.serial_in * splits.serial_out) for step in steps]
    exchange = target.exchange
    overhead = exchange.sync_cycles + exchange.setup_cycles
    launch = target.tile.vertex_launch_cycles
    cycles: Count = 0
    for step in steps:
        own = step.exchange + step.compute if step.expected is None else step.expected
        cycles = cycles + own
        cycles = cycles + step.exchanges * overhead + step.launches * launch
    temporary = _temporary(problem, method, shares, outputs, depth)
    return Costs(tuple(steps), cycles, temporary, shares, outputs)


def _repeated(step: CandidateStep, times: int) -> CandidateStep:
    """``step`` in each of several serial steps."""
    if times == 1:
        return step
    return replace(
        step,
        exchange=step.exchange * times,
        compute=step.compute * times,
        exchanges=step.exchanges * times,
        launches=step.launches * times,
        expected=None if step.expected is None else step.expected * times,
    )


def _slice(problem: ConvProblem, splits: Candidates, shares: Shares) -> CandidateStep:
    """Taking the weights, and with serial input channels the inputs, of this serial step."""
    if splits.serial_in * splits.serial_out == 1:
        return CandidateStep("slice")
    elements = ceil_div(shares.weights, np.maximum(splits.field, 1))
    if splits.serial_in > 1:
        elements = elements + ceil_div(shares.inputs, splits.out_channels)
    vector = VECTOR[problem.inputs_type]
    return CandidateStep("slice", compute=movement.dynamic_slice(elements, 1, vector), launches=1)


def _convolve(
    problem: ConvProblem, method: Method, splits: Candidates, shares: Shares, target: Target
) -> CandidateStep:
    """Fetching operands, and the vertex."""
    size, exchange = problem.element_bytes, target.exchange
    # One in N tiles that need the same data has it already, if it has been laid out for this plan:
    # rims of fields, and what an op before has left, come from others.
    inputs_lie, weights_lie = problem.inputs_lie, problem.weights_lie
    laid_out = _laid_out(inputs_lie, copied=copies_inputs(problem, method))
    held = problem.inputs_elements // splits.tiles if laid_out else 0
    inputs = np.maximum(shares.inputs - held, 0) * size
    laid_out = _laid_out(weights_lie, copied=copies_weights(problem, method))
    weights = (shares.weights - (shares.weights // splits.field if laid_out else 0)) * size
    # Tiles that share a bus are neighbours along the output channels.
    shared = splits.out_channels % exchange.shared_bus_tiles == 0
    speed = exchange.bytes_per_cycle * np.where(shared, exchange.shared_bus_tiles, 1)
    payload = movement.exchange_cycles(inputs, speed)
    payload = payload + movement.exchange_cycles(weights, exchange.bytes_per_cycle)
    sources = _sources(problem, splits, shares)
    # A receiver selects each source and sets a pointer; one instruction each.
    payload = np.maximum(payload, 2 * sources)
    used = inputs + weights > 0
    return CandidateStep(
        "convolve",
        payload,
        _vertex(problem, method, shares, target.conv),
        exchanges=np.where(used, 1, 0),
        launches=1,
        sources=sources,
    )


def _laid_out(lie: OperandLayout, *, copied: bool) -> bool:
    """True if an operand lies on the tiles of the plan; blocks become others where they are."""
    return lie.placed or (copied and not lie.block)


def _sources(problem: ConvProblem, splits: Candidates, shares: Shares) -> Count:
    """Tiles that the busiest tile hears from: operands are spread evenly over all that work.

    Fewer hold what would be less than 128 bytes on each.
    """
    least = max(_LEAST_BYTES // problem.element_bytes, 1)
    inputs = splits.field * splits.in_channels * splits.groups * splits.kernel
    held = np.maximum(ceil_div(shares.inputs * inputs, splits.tiles * problem.positions), least)
    weights = splits.in_channels * splits.out_channels * splits.groups * splits.kernel
    own = np.maximum(ceil_div(shares.weights * weights, splits.tiles), least)
    far = np.minimum(ceil_div(shares.inputs, held), splits.tiles)
    return far + np.minimum(ceil_div(shares.weights, own), splits.tiles)


def _vertex(problem: ConvProblem, method: Method, shares: Shares, conv: Conv) -> Count:
    """Cycles of the vertex of ``method`` on the busiest tile."""
    rows, width = _met(problem, method, shares)
    positions = shares.kernel_rows * problem.kernel[1]
    float_partials = problem.partials_type == "float"
    if method.kind is VertexKind.AMP:
        return _amp(problem, method, shares, conv)
    if method.kind is VertexKind.SLIC:
        return _slic(problem, method, shares, conv)
    if method.kind is VertexKind.VMAC:
        return vertical_mac(
            shares.groups * shares.out_groups,
            shares.in_groups,
            rows * shares.columns,
            (shares.kernel_rows, ceil_div(problem.kernel[1], problem.spread[1])),
            lanes=method.conv_group,
            float_partials=float_partials,
        )
    float_inputs = problem.inputs_type == "float"
    if method.kind is VertexKind.OUTER_PRODUCT:
        channels = shares.out_groups * shares.groups * method.out_group
        wide = float_inputs or problem.output_type == "float"
        return outer_product(rows * width, channels, method.out_group, float_types=wide)
    return horizontal_mac(
        shares.groups,
        shares.in_groups,
        shares.out_groups,
        rows,
        width,
        positions,
        in_channels=method.in_group,
        out_channels=method.out_group,
        float_inputs=float_inputs,
        float_partials=float_partials,
    )


def _slic(problem: ConvProblem, method: Method, shares: Shares, conv: Conv) -> Count:
    blocks = shares.kernel_rows * ceil_div(problem.kernel[1], 4)
    rows = shares.batch * shares.rows
    if problem.inputs_type == "quarter":
        return slic_quarter(shares.groups, blocks, rows, shares.columns, problem.strides[1])
    return slic(
        shares.groups,
        blocks,
        rows,
        shares.columns,
        channels=method.in_group,
        lanes=method.conv_group,
        stride=problem.strides[1],
        float_partials=problem.partials_type == "float",
        chains=slic_chains(problem, conv),
    )


def _amp(problem: ConvProblem, method: Method, shares: Shares, conv: Conv) -> Count:
    types = AmpTypes(
        method.units,
        float_inputs=problem.inputs_type == "float",
        float_partials=problem.partials_type == "float",
        quarter_inputs=problem.inputs_type == "quarter",
    )
    rows, columns = _met(problem, method, shares)
    tile = TileConv(
        shares.groups,
        shares.in_groups,
        shares.out_groups,
        rows,
        columns,
        passes=ceil_div(method.out_group, method.units),
        kernel_y=shares.kernel_rows,
        kernel_x=problem.kernel[1],
        filter_height=method.filter_height,
    )
    # Poplin loads 64 bits at a time unless it is told that operands are interleaved.
    load = conv.coefficient_load_bytes_per_cycle // 2
    flat = problem.positions == 1 and problem.field[0] == 1 and problem.batch == 1
    return conv_1x1(types, tile, load) if flat else conv_nx1(types, tile, load)


def _reduce(
    problem: ConvProblem, shares: Shares, depth: Count, target: Target
) -> list[CandidateStep]:
    """Adding up partial results of tiles that share input channels or kernel rows."""
    partial = BYTES[problem.partials_type]
    float_partials = problem.partials_type == "float"
    float_output = problem.output_type == "float"
    steps: list[CandidateStep] = []
    left, elements = depth, shares.partials
    for stage in range(3):
        stages = np.where(left >= 125, 3 - stage, np.where(left >= 16, 2, 1))
        stages = np.minimum(stages, 3 - stage)
        now = np.ceil(left ** (1.0 / stages) - 1e-9).astype(np.int64)
        used = left > 1
        outputs = ceil_div(elements, np.maximum(now, 1))
        last = ceil_div(left, now) == 1
        # All of a tile's partial results leave it, and as many arrive: one part of each.
        payload = movement.exchange_cycles(elements * partial, target.exchange.bytes_per_cycle)
        add = reduce.conv_reduce(
            outputs, now, float_partials=float_partials, float_output=float_output
        )
        steps.append(
            CandidateStep(
                "reduce",
                np.where(used, np.maximum(payload, 2 * now), 0),
                np.where(used, add, 0),
                exchanges=np.where(used, 1, 0),
                launches=np.where(used, 1, 0),
                sources=np.where(used, now, 0),
            )
        )
        left, elements = np.where(last, 1, ceil_div(left, now)), outputs
    return steps


def _cast(problem: ConvProblem, depth: Count, outputs: Count) -> CandidateStep:
    """To the type of the result, where no reduction has done that."""
    if problem.partials_type == problem.output_type:
        return CandidateStep("cast")
    cycles = elementwise.cast(problem.partials_type, problem.output_type, outputs)
    used = depth == 1
    return CandidateStep("cast", compute=np.where(used, cycles, 0), launches=np.where(used, 1, 0))


def _update(problem: ConvProblem, splits: Candidates, outputs: Count) -> CandidateStep:
    """Putting the part of a serial step in its place, or adding it to the others."""
    if splits.serial_in > 1:
        add = elementwise.binary("add", problem.output_type, outputs, inplace=True)
        return CandidateStep("update", compute=add, launches=1)
    if splits.serial_out > 1:
        vector = VECTOR[problem.output_type]
        return CandidateStep(
            "update", compute=movement.dynamic_slice(outputs, 1, vector), launches=1
        )
    return CandidateStep("update")


def _temporary(
    problem: ConvProblem, method: Method, shares: Shares, outputs: Count, depth: Count
) -> Count:
    """Bytes of the busiest tile beside its operands and results."""
    size, partial = problem.element_bytes, BYTES[problem.partials_type]
    inputs, weights = shares.inputs * size, shares.weights * size
    partials = shares.partials * partial
    if method.kind is VertexKind.SLIC:
        partials = partials + ceil_div(partials, np.maximum(shares.groups, 1)) + 200
    working = inputs + weights + partials + padding_elements(problem, method, shares) * size
    transforms: Count = 0
    if copies_inputs(problem, method):
        transforms = 2 * inputs
    if copies_weights(problem, method):
        transforms = np.maximum(transforms, 2 * weights)
    reducing = np.where(depth > 1, partials + outputs * depth * partial, 0)
    return np.maximum(np.maximum(working, transforms), reducing)
