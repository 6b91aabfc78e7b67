"""Copies before products move what all tiles together have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from popc.cost.planner import (
    PLACED,
    ROWS,
    TURNED,
    ConvProblem,
    OperandLayout,
    matmul_problem,
)
from popc.cost.planner.candidates import Candidates
from popc.cost.planner.evaluate import evaluate
from popc.cost.planner.methods import Method, VertexKind, methods_for
from popc.target import find_target

_TARGET = find_target("ipu2")


@pytest.mark.parametrize("parts", [1, 4, 28, 112])
def test_copies_move_all_of_the_operands(parts: int) -> None:
    """Of a gradient by weights, whose kernel is an image: tiles that share its rows have some each.

    An image of 112 x 112 moves over another one, with a border, and is larger than the result.
    """
    problem = ConvProblem(
        *("half", "float", "half"), 8, 1, (3, 3), 4, 1, (112, 112), inputs=(112, 112),
        inputs_lie=OperandLayout(block=1), weights_lie=OperandLayout(block=1),
    )  # fmt: skip
    method = Method(VertexKind.VMAC, 1, 1, conv_group=4)
    costs = evaluate(problem, method, Candidates(2, 1, 1, 1, 1, 1, parts), _TARGET)
    (step,) = [step for step in costs.steps if step.name == "transform"]
    tiles, moved = 2 * parts, 2 * 8 * 4 * 112 * 112 * 2  # bytes of both operands
    assert step.compute >= 587 + moved / tiles * 0.44
    assert step.compute < 587 + 1.2 * moved / tiles * 5.15


def _transform(problem: ConvProblem, method: Method) -> tuple[int, int]:
    """Cycles of the copies before the vertices on one tile, and of those that poplin expects."""
    costs = evaluate(problem, method, Candidates(1, 1, 1, 1, 1, 1, 1), _TARGET)
    (step,) = [step for step in costs.steps if step.name == "transform"]
    assert step.expected is not None
    return int(step.compute), int(step.expected)


@pytest.mark.parametrize(
    ("lie", "depth", "cycles"),
    [
        (PLACED, 64, 0),
        (OperandLayout(16), 64, 0),  # in blocks of those that vertices take
        (OperandLayout(8), 64, 587 + 2 * 32 * 64 * 0.4404),
        (OperandLayout(16), 72, 587 + 2 * 32 * 80 * 0.4404),  # a block is filled up
        (ROWS, 64, 587 + 2 * 32 * 64 * 0.4404),
        (ROWS, 66, 587 + 2 * 32 * 80 * 3.125),
        (ROWS, 65, 587 + 2 * 32 * 80 * 5.1484),
        (TURNED, 64, 587 + 2 * 32 * 64 * 5.1484),
    ],
)
def test_operands_are_copied_into_blocks(lie: OperandLayout, depth: int, cycles: float) -> None:
    problem = matmul_problem(("half", "float", "half"), 1, 32, depth, 64, inputs_lie=lie)
    compute, _ = _transform(problem, Method(VertexKind.AMP, 16, 16, units=8))
    assert compute == pytest.approx(cycles, abs=1)


@pytest.mark.parametrize(
    ("inputs_type", "rows", "depth", "cycles"),
    [
        ("half", 32, 64, 7 + 6 * (29 + 2 * (18 + 4 * (12 + 4 * 2)))),  # 8 of 16 x 16, 6 workers
        ("half", 36, 64, 7 + 6 * (29 + 6 * (18 + 1 * (12 + 4 * 2)))),  # 36 of 4 x 16
        ("float", 32, 64, 7 + 6 * (29 + 6 * (18 + 4 * (12 + 3 * 2)))),  # 32 of 8 x 8
        ("half", 32, 66, 0),
        ("half", 33, 64, 0),
    ],
)
def test_gradients_have_operands_transposed_if_whole_grains_lie_side_by_side(
    inputs_type: str, rows: int, depth: int, cycles: int
) -> None:
    problem = matmul_problem(
        (inputs_type, "float", inputs_type), 1, rows, depth, 64, inputs_lie=TURNED, backward=True
    )
    method = Method(VertexKind.AMP, 8 if inputs_type == "float" else 16, 16, units=8)
    costs = evaluate(problem, method, Candidates(1, 1, 1, 1, 1, 1, 1), _TARGET)
    (step,) = [step for step in costs.steps if step.name == "transpose"]
    assert step.compute == cycles
    assert step.exchanges == (cycles > 0)
    copies, _ = _transform(problem, method)  # which take no longer than from rows, then
    rows_lie, _ = _transform(replace(problem, inputs_lie=ROWS), method)
    assert (copies == rows_lie) == (cycles > 0)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_what_many_tiles_fetch_is_transposed_once(side: int, *, backward: bool) -> None:
    """More than poplin lets copy by themselves, on their way to the vertices."""
    lie = [ROWS, ROWS]
    lie[side] = TURNED
    problem = matmul_problem(
        ("half", "float", "half"), 1, 256, 256, 256,
        inputs_lie=lie[0], weights_lie=lie[1], backward=backward,
    )  # fmt: skip
    method = Method(VertexKind.AMP, 16, 16, units=8)
    for readers in (1, 4, 8, 16):
        one = np.array([1])
        columns, outs = np.array([readers]) if side else one, one if side else np.array([readers])
        costs = evaluate(problem, method, Candidates(1, 1, 1, columns, 1, outs, 1), _TARGET)
        steps = {step.name: np.asarray(step.compute).max() for step in costs.steps}
        elements = 256 * 256 // readers
        is_transposed = backward or readers >= 7
        assert (steps["transpose"] > 0) == is_transposed
        apart = 0 if is_transposed else 2 * elements * (5.1484 - 0.4404)
        assert steps["transform"] == pytest.approx(587 + 4 * elements * 0.4404 + apart, rel=0.01)


def test_poplin_expects_copies_of_all_where_operands_change_places() -> None:
    problem = matmul_problem(("half", "float", "half"), 1, 32, 64, 64)
    method = Method(VertexKind.AMP, 16, 16, units=8)
    assert _transform(problem, method) == (0, 0)
    # 2,048 and 4,096 halves of operands and 2,048 of results, 0.5 + 1.25 cycles for each.
    assert _transform(problem.with_operands_swapped(), method) == (0, 8192 * 1.75)


@pytest.mark.parametrize(
    ("inputs_type", "block", "cycles"), [("half", 16, 0), ("float", 16, 0.4404 * 4 * 64 * 64)]
)
def test_units_take_fewer_channels_of_floats_than_they_make(
    inputs_type: str, block: int, cycles: float
) -> None:
    """What a convolution of floats leaves in blocks of 16 channels the next takes in eights."""
    types = (inputs_type, "float", inputs_type)
    lie = OperandLayout(block)
    problem = ConvProblem(*types, 1, 1, (8, 8), 64, 64, inputs=(8, 8), inputs_lie=lie)
    method = methods_for(problem, _TARGET.conv)[-1 if inputs_type == "half" else 0]
    assert method.out_group == 16
    compute, expected = _transform(problem, method)
    assert compute == pytest.approx(cycles + 587 if cycles else 0, abs=1)
    assert (expected > 0) == (cycles > 0)


@pytest.mark.parametrize(("channels", "piece"), [(16, 0.4404), (4, 0.4404), (6, 5.1484)])
def test_kernel_positions_become_channels_in_grains_of_what_is_transposed(
    channels: int, piece: float
) -> None:
    """A gradient by weights of three samples: fours of channels are transposed, sixes are not."""
    lie = OperandLayout(across=channels)
    problem = ConvProblem(
        *("half", "float", "half"), 1, channels, (1, 1), 3, 16, (7, 7), inputs=(7, 7),
        inputs_lie=lie, weights_lie=PLACED,
    )  # fmt: skip
    product = problem.with_kernel_in_channels(rows=True)
    compute, _ = _transform(product, Method(VertexKind.AMP, 16, 8, units=8))
    padded = 2 * channels * 160  # 147 positions of all samples fill ten blocks
    assert compute == pytest.approx(587 + padded * piece, abs=1)


def _received(problem: ConvProblem, splits: Candidates) -> int:
    """Bytes of inputs and weights that the busiest tile receives."""
    method = Method(VertexKind.AMP, 16, 8, units=8)
    costs = evaluate(problem, method, splits, _TARGET)
    (step,) = [step for step in costs.steps if step.name == "convolve"]
    return 4 * int(step.exchange)


def test_rims_of_fields_come_from_other_tiles() -> None:
    """Four tiles have 4 rows of 16 each; with a kernel of three rows they read six."""
    problem = ConvProblem(
        *("half", "float", "half"), 1, 1, (16, 16), 16, 8, (3, 3), inputs=(18, 18)
    )
    weights = 2 * 9 * 16 * 8 * 3 // 4  # a tile has a fourth of them
    rows = Candidates(1, 1, 4, 1, 1, 1, 1)
    assert _received(problem, rows) == weights + 2 * 16 * 18 * (6 - 18 // 4) - 2 * 16 * 18 // 2


def test_what_another_op_has_left_comes_from_other_tiles() -> None:
    """As many tiles share rows as outputs: of what lies for this plan each has its part already."""
    placed = matmul_problem(("half", "float", "half"), 1, 64, 64, 64)
    left = replace(placed, inputs_lie=OperandLayout(16))
    splits = Candidates(1, 1, 1, 4, 1, 2, 1)
    share = 2 * 16 * 64  # sixteen rows, which both tiles of a pair receive at once
    assert _received(left, splits) - _received(placed, splits) == share // 2 // 2
    left = replace(placed, weights_lie=OperandLayout(16))
    share = 2 * 64 * 32  # half of the columns, of which four tiles have a quarter each
    assert _received(left, splits) - _received(placed, splits) == share // 4
