"""Reductions are planned as popops does it: on tiles, then between them.

Expected numbers are popops' rules and estimators applied by hand.
"""

from __future__ import annotations

import pytest

from popc.cost.formulas.reduce import continuous, strided
from popc.cost.mapping import LINEAR, Layout
from popc.cost.parts import part_of
from popc.cost.planner import Dims, ReductionProblem, ReductionStage, plan_reduction
from popc.target import Target, find_target

_HALVES = "half", "half"


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target("ipu2")


def _plan(problem: ReductionProblem, target: Target) -> list[ReductionStage]:
    return list(plan_reduction(problem, target))


@pytest.mark.parametrize(
    ("dims", "share", "widths", "rows", "run", "spread"),
    [
        # Eight columns side by side, of each of which a quarter is here.
        (((16, False), (4, True), (16, False), (32, True), (8, False)), 256, (8,), 32, 1, 4),
        # Whole rows, and a part of one.
        (((1472, False), (64, True)), 128, (2,), 64, 64, 1),
        (((100, False), (64, True)), 16, (1,), 16, 16, 4),
        # Runs of four.
        (((16, False), (256, True), (8, False), (4, True)), 128, (8,), 16, 4, 64),
        # The part ends within a row: four columns have one element more than the others.
        (((4, False), (25088, True), (8, False)), 548, (4, 4), 69, 1, 367),
    ],
)
def test_parts_of_what_lies_in_a_row(
    dims: Dims, share: int, widths: tuple[int, ...], rows: int, run: int, spread: int
) -> None:
    part = part_of(dims, share, LINEAR, _HALVES)
    assert (part.widths, part.rows, part.run, part.spread) == (widths, rows, run, spread)


def test_rows_of_a_product_lie_in_blocks() -> None:
    """Of 120 rows, that six tiles share, a tile has 12, 128 columns of each in blocks of 16."""
    layout = Layout("product", tiles=60, block=16, row_parts=6, rows=12)
    part = part_of(((120, False), (768, True)), 1536, layout, _HALVES)
    assert part == ReductionProblem(120, (12,), 128, 16, 6, "half", "half")


def test_sums_of_halves_are_floats_until_the_end() -> None:
    problem = ReductionProblem(8, (8,), 32, 1, 1, "half", "half")
    assert problem.partial == "float"
    assert ReductionProblem(8, (8,), 32, 1, 1, "half", "half", maximum=True).partial == "half"


def test_workers_share_rows_if_there_are_few_columns(target: Target) -> None:
    """32 rows of 8 halves: a worker takes 6, and one adds up what six have found."""
    stages = _plan(ReductionProblem(2048, (8,), 32, 1, 4, "half", "half"), target)
    first, last = stages
    assert first.compute == (
        6 * strided(8, 6, "half", result="float"),
        6 * strided(8, 6, "float", result="float"),
    )
    # Results go to tiles by eights; two workers take four each, of four partial results.
    assert last.compute == (6 * strided(4, 4, "float", result="half"),)
    assert (last.bytes, last.sources) == (8 * 4 * 4, 4)


def test_the_largest_of_few_rows_are_found_by_one_worker_for_each_vector(target: Target) -> None:
    """Two stages cost more than 32 rows of four halves do."""
    stages = _plan(ReductionProblem(2048, (8,), 32, 1, 4, "half", "half", maximum=True), target)
    assert stages[0].compute == (6 * strided(4, 32, "half", result="half", maximum=True),)
    assert len(stages) == 2


def test_whole_rows_need_nothing_from_other_tiles(target: Target) -> None:
    stages = _plan(ReductionProblem(11_664, (8,), 729, 729, 1, "half", "half"), target)
    assert [stage.compute for stage in stages] == [(6 * continuous(2, 729, "half"),)]
    assert not stages[0].exchange


def test_runs_are_added_up_as_columns_first(target: Target) -> None:
    """Twelve rows in blocks of 16 columns, of which there are eight: six workers take two rows."""
    first, _ = _plan(ReductionProblem(120, (12,), 128, 16, 6, "half", "half"), target)
    assert first.compute == (
        6 * strided(2 * 16, 8, "half", result="float"),
        6 * continuous(2, 16, "float"),
    )


def test_workers_share_runs_only_if_rows_can_be_divided(target: Target) -> None:
    first, _ = _plan(ReductionProblem(120, (11,), 128, 16, 6, "half", "half"), target)
    assert first.compute[0] == 6 * strided(11 * 16, 8, "half", result="float")


def test_many_partial_results_are_reduced_in_between(target: Target) -> None:
    """367 tiles have some of each of 32 results: 22 tiles reduce 17 of them for four results."""
    problem = ReductionProblem(32, (4, 4), 69, 1, 367, "half", "half")
    first, between, last = _plan(problem, target)
    assert len(first.compute) == 2
    assert (between.bytes, between.sources) == (17 * 4 * 4, 17)
    assert between.compute == (6 * strided(4, 17, "float", result="float"),)
    assert (last.bytes, last.sources) == (22 * 8 * 4, 44)


def test_few_results_of_many_tiles_end_on_one(target: Target) -> None:
    """A sum of everything: every tile has a number."""
    stages = _plan(part_of(((1 << 20, True),), 714, LINEAR, _HALVES), target)
    assert len(stages) == 3
    assert stages[-1].results == 1
