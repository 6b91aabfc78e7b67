"""Conv groups side by side, and inputs with zeros in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from popc.cost.planner import ROWS, ConvProblem, OperandLayout, Plan, Planner
from popc.cost.planner.methods import VertexKind, methods_for
from popc.cost.planner.search import forms_of
from popc.target import find_target

_TARGET = find_target("ipu2")


def _cycles(plan: Plan) -> int:
    return sum(part.exchange + part.compute for part in plan.parts)


@pytest.mark.parametrize(("partials", "lanes"), [("float", {4}), ("half", {4, 8, 16})])
def test_more_groups_side_by_side_need_short_partial_results(
    partials: str, lanes: set[int]
) -> None:
    problem = ConvProblem("half", partials, "half", 64, 1, (9, 9), 1, 1, (3, 3), inputs=(9, 9))
    for kind in (VertexKind.VMAC, VertexKind.SLIC):
        methods = methods_for(problem, _TARGET.conv)
        assert {method.conv_group for method in methods if method.kind is kind} == lanes


def test_depthwise_gradients_by_weights_add_up_along_rows() -> None:
    lie = OperandLayout(groups=4)
    problem = ConvProblem(
        "half", "float", "half", 512, 1, (3, 3), 4, 1, (7, 7), (1, 1), (2, 2), (14, 14)
    )
    problem = replace(problem, inputs_lie=lie, weights_lie=lie)
    plan = Planner(_TARGET).plan(problem, 0.6)
    assert plan.method.kind is VertexKind.VMAC
    apart = replace(problem, inputs_lie=ROWS, weights_lie=ROWS)
    assert _cycles(plan) < _cycles(Planner(_TARGET).plan(apart, 0.6))


def test_zeros_between_inputs_are_not_multiplied() -> None:
    dense = ConvProblem("half", "half", "half", 1, 4, (56, 56), 64, 64, (4, 4), inputs=(56, 56))
    apart = replace(dense, inputs=(28, 28), spread=(2, 2))
    planner = Planner(_TARGET)
    assert 4 * apart.macs == dense.macs
    assert _cycles(planner.plan(apart, 0.6)) < 0.6 * _cycles(planner.plan(dense, 0.6))


def test_gradients_with_a_stride_slide_over_zeros() -> None:
    """Windows of four take inputs apart that have been given zeros, faster than sums by columns."""
    problem = ConvProblem("half", "float", "half", 256, 4, (28, 28), 1, 1, (3, 3), inputs=(14, 14))
    apart = replace(problem, spread=(2, 2))
    assert Planner(_TARGET).plan(apart, 0.6).method.kind is VertexKind.SLIC
    far = replace(problem, dilations=(2, 2))
    assert VertexKind.SLIC not in {method.kind for method in methods_for(far, _TARGET.conv)}


def test_windows_of_bytes_take_eight_channels() -> None:
    problem = ConvProblem("quarter", "half", "half", 1, 1, (9, 9), 3, 16, (3, 3), inputs=(9, 9))
    conv = find_target("c600").conv
    kinds = {(m.kind, m.in_group, m.out_group) for m in methods_for(problem, conv)}
    assert (VertexKind.SLIC, 8, 8) in kinds
    many = methods_for(replace(problem, in_channels=16), conv)
    assert VertexKind.SLIC not in {method.kind for method in many}


@pytest.mark.parametrize(
    ("lanes", "channels", "counts"),
    [("float", 1, {2, 4, 8}), ("half", 1, {4, 8, 16}), ("half", 2, {2, 4, 8}), ("half", 4, set())],
)
def test_groups_of_few_channels_may_be_one(lanes: str, channels: int, counts: set[int]) -> None:
    """Poplin's numbers: from as many as fill 64 bits to as many as a unit takes."""
    problem = ConvProblem(
        *(lanes, "float", lanes), 48, 1, (9, 9), channels, 1, (3, 3), inputs=(9, 9)
    )
    forms = [form for form in forms_of(problem) if form.combined > 1]
    assert {form.combined for form in forms} == counts
    for form in forms:
        assert form.groups * form.in_channels == 48 * channels
        assert form.groups * form.out_channels == 48


def test_depthwise_convolutions_of_floats_take_groups_together() -> None:
    lie = OperandLayout(1, 8)
    problem = ConvProblem(
        *("float", "float", "float"), 96, 16, (24, 24), 1, 1, (5, 5), inputs=(28, 28),
        inputs_lie=lie,
    )  # fmt: skip
    plan = Planner(_TARGET).plan(problem, 0.6)
    assert (plan.method.kind, plan.combined, plan.expanded) == (VertexKind.AMP, 8, 0)
    assert str(plan).endswith("combined 8")
