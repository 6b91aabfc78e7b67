"""Copies before products move what all tiles together have."""

from __future__ import annotations

import pytest

from popc.cost.planner import ConvProblem, OperandLayout
from popc.cost.planner.candidates import Candidates
from popc.cost.planner.evaluate import evaluate
from popc.cost.planner.methods import Method, VertexKind
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
