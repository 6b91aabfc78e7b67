"""Zeros that vertices need around inputs and kernels come in an exchange of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from popc.cost.planner import ConvProblem
from popc.cost.planner.candidates import Candidates
from popc.cost.planner.evaluate import evaluate, shares_of
from popc.cost.planner.methods import Method, VertexKind, methods_for
from popc.cost.planner.padding import padding_elements
from popc.target import find_target

_TARGET = find_target("ipu2")
_CONV = ConvProblem("half", "float", "half", 1, 1, (8, 10), 4, 4, (3, 3), inputs=(8, 10))
_SLIC = Method(VertexKind.SLIC, 4, 4)
_ONE_ROW = Method(VertexKind.AMP, 16, 8, units=8)
_FOUR_ROWS = Method(VertexKind.AMP, 4, 8, units=8, filter_height=4)


def _splits() -> Candidates:
    one = np.ones(1, np.int64)
    return Candidates(one, one, one, one, one, one, one)


def _zeros(problem: ConvProblem, method: Method) -> int:
    return int(np.sum(padding_elements(problem, method, shares_of(problem, method, _splits()))))


def _padded(inputs: tuple[int, int], outputs: tuple[int, int]) -> int:
    """Places in a field that are no inputs, counted one by one."""
    return sum(
        1
        for row in range(outputs[0])
        for column in range(outputs[1])
        if row >= inputs[0] or column >= inputs[1]
    )


def test_windows_of_four_need_a_fourth_column_and_all_padding() -> None:
    """The input gets a row above and below; columns on both sides, and one for the kernel's."""
    around = _padded((8, 10), (10, 13)) * 4
    kernel = _padded((3, 3), (3, 4)) * 4 * 4
    assert _zeros(_CONV, _SLIC) == around + kernel


def test_four_rows_at_once_need_whole_fours_of_rows() -> None:
    """Outputs come in eights, of which four are there; rows are padded, columns are not."""
    around = _padded((8, 10), (11, 10)) * 4
    kernel = _padded((3, 3), (4, 3)) * 4 * 8
    assert _zeros(_CONV, _FOUR_ROWS) == around + kernel


def test_rows_apart_have_zeros_in_between() -> None:
    """Of eight rows a gradient with a stride of two has four; AMP with single rows skips others."""
    apart = replace(_CONV, inputs=(4, 5), spread=(2, 2))
    assert _zeros(apart, _FOUR_ROWS) - _zeros(_CONV, _FOUR_ROWS) == 4 * 10 * 4
    assert _zeros(apart, _ONE_ROW) == 0


def test_windows_of_four_want_zeros_between_inputs_of_both_axes() -> None:
    apart = replace(_CONV, inputs=(4, 5), spread=(2, 2))
    places = {(2 * row, 2 * column) for row in range(4) for column in range(5)}
    between = sum((row, column) not in places for row in range(8) for column in range(10))
    assert _zeros(apart, _SLIC) - _zeros(_CONV, _SLIC) == 4 * between


@pytest.mark.parametrize(("method", "exchanges"), [(_SLIC, 1), (_FOUR_ROWS, 1), (_ONE_ROW, 0)])
def test_zeros_are_exchanged_before_the_convolution(method: Method, exchanges: int) -> None:
    costs = evaluate(_CONV, method, _splits(), _TARGET)
    step = next(step for step in costs.steps if step.name == "pad")
    assert int(np.sum(step.exchanges)) == exchanges
    assert int(np.sum(step.exchange)) == -(-2 * _zeros(_CONV, method) // 4)


def test_whole_windows_without_padding_need_no_zeros() -> None:
    whole = replace(_CONV, kernel=(4, 4), field=(5, 7))
    assert _zeros(whole, _SLIC) == _zeros(whole, _FOUR_ROWS) == 0


@pytest.mark.parametrize(
    ("inputs_type", "channels", "groups"),
    [
        ("half", 3, {(16, 1), (8, 2), (4, 4)}),
        ("half", 24, {(16, 1), (8, 2)}),
        ("half", 32, {(16, 1)}),
        ("float", 3, {(8, 1), (4, 2)}),
        ("quarter", 3, {(32, 1), (16, 2), (8, 4)}),
    ],
)
def test_fewer_channels_are_filled_up_where_vertices_take_more_rows(
    inputs_type: str, channels: int, groups: set[tuple[int, int]]
) -> None:
    """A unit holds 32 bytes of weights: of so many channels, or of as many fewer and more rows."""
    sums = "float" if inputs_type == "float" else "half"
    result = "half" if inputs_type == "quarter" else inputs_type
    problem = ConvProblem(
        *(inputs_type, sums, result), 1, 1, (9, 9), channels, 16, (7, 7), inputs=(9, 9)
    )
    conv = find_target("c600").conv
    found = {
        (method.in_group, method.filter_height)
        for method in methods_for(problem, conv)
        if method.kind is VertexKind.AMP
    }
    assert found == groups
    flat = methods_for(replace(problem, kernel=(1, 7)), conv)
    assert {method.filter_height for method in flat} == {1}
