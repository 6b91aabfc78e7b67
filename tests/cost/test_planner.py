"""Plans cover the work exactly, keep to their memory, and are found again."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.cost.planner import (
    PLACED,
    ROWS,
    TURNED,
    ConvProblem,
    OperandLayout,
    Plan,
    Planner,
    matmul_problem,
)
from popc.cost.planner.candidates import candidates_for, split_counts
from popc.cost.planner.evaluate import evaluate, shares_of
from popc.cost.planner.methods import VertexKind, methods_for
from popc.target import configure_target, find_target

_TARGET = find_target("ipu2")
_SMALL = configure_target(_TARGET, tiles_per_ipu=64)
_TYPES = (("half", "half", "half"), ("half", "float", "half"), ("float", "float", "float"))


def _ranges(size: int, parts: int) -> list[range]:
    """``size`` cut into ``parts``, as evenly as it goes; written apart from the planner."""
    return [range(size * i // parts, size * (i + 1) // parts) for i in range(parts)]


def _check_cover(problem: ConvProblem, plan: Plan) -> None:
    """Every multiplication happens on exactly one tile and in one serial step."""
    form = problem.flattened()
    if plan.combined > 1:
        form = form.with_groups_combined(plan.combined)
    if plan.expanded:
        rows = plan.expanded > form.kernel[1] or form.positions == 1
        form = form.with_kernel_in_channels(rows=rows)
    if plan.swapped:
        form = form.with_operands_swapped()
    splits, method = plan.splits, plan.method
    assert splits.tiles <= _TARGET.compute_tiles
    sizes = {
        "groups": (-(-form.groups // method.conv_group), splits.groups),
        "batch": (form.batch, splits.batch),
        "rows": (form.field[0], splits.rows),
        "columns": (form.field[1], splits.columns),
        "in": (-(-form.in_channels // method.in_group), splits.in_channels * splits.serial_in),
        "out": (-(-form.out_channels // method.out_group), splits.out_channels * splits.serial_out),
        "kernel": (-(-form.kernel[0] // method.filter_height), splits.kernel),
    }
    for size, parts in sizes.values():
        pieces = _ranges(size, parts)
        assert sorted(item for piece in pieces for item in piece) == list(range(size))


def _convolution(
    types: tuple[str, str, str],
    sizes: tuple[int, int, int, int],
    field: tuple[int, int],
    kernel: int,
    stride: int,
) -> ConvProblem:
    inputs_type, partials_type, output_type = types
    groups, batch, ins, outs = sizes
    return ConvProblem(
        inputs_type,
        partials_type,
        output_type,
        groups,
        batch,
        field,
        ins,
        outs,
        (kernel, kernel),
        (stride, stride),
        inputs=(field[0] * stride, field[1] * stride),
    )


_problems = st.builds(
    _convolution,
    st.sampled_from(_TYPES),
    st.tuples(
        st.sampled_from([1, 1, 1, 4, 12]),
        st.integers(1, 8),
        st.integers(1, 200),
        st.integers(1, 200),
    ),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([1, 1, 3, 5]),
    st.sampled_from([1, 2]),
)


@settings(max_examples=60, deadline=None)
@given(_problems, st.sampled_from([0.1, 0.6]))
def test_plans_of_random_convolutions(problem: ConvProblem, proportion: float) -> None:
    plan = Planner(_TARGET).plan(problem, proportion)
    _check_cover(problem, plan)
    if plan.fits:
        assert plan.temporary_bytes <= proportion * _TARGET.tile.memory_bytes
    results = problem.groups * problem.batch * prod(problem.field) * problem.out_channels
    # Every tile has as many results as its share says; together they are enough.
    assert plan.outputs_per_tile * min(plan.splits.tiles, _TARGET.compute_tiles) >= results
    assert all(part.compute >= 0 and part.exchange >= 0 for part in plan.parts)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(_TYPES),
    st.integers(1, 16),
    st.integers(1, 600),
    st.integers(1, 900),
    st.integers(1, 900),
)
def test_plans_of_random_products(
    types: tuple[str, str, str], groups: int, rows: int, depth: int, columns: int
) -> None:
    problem = matmul_problem(types, groups, rows, depth, columns)
    plan = Planner(_TARGET).plan(problem, 0.6)
    _check_cover(problem, plan)
    # No tile can be faster than its units.
    peak = {"float": 16, "half": 64}[types[1] if types[0] == "half" else "float"]
    peak = 32 if types[:2] == ("half", "float") else peak
    compute = sum(part.compute for part in plan.parts)
    assert compute * peak * plan.splits.tiles >= problem.macs


def test_shares_are_those_of_the_busiest_tile() -> None:
    problem = ConvProblem(
        "half", "float", "half", 1, 3, (10, 7), 40, 50, (3, 3), (1, 1), (1, 1), (10, 7)
    )
    method = methods_for(problem, _SMALL.conv)[0]
    splits = candidates_for(problem, method, 64)
    shares = shares_of(problem, method, splits)
    for index in range(0, len(splits.batch), 7):
        most = 0
        rows = _ranges(problem.field[0], int(splits.rows[index]))
        columns = _ranges(problem.field[1], int(splits.columns[index]))
        batches = _ranges(problem.batch, int(splits.batch[index]))
        outs = _ranges(-(-50 // method.out_group), int(splits.out_channels[index]))
        for batch, row, column, out in product(batches, rows, columns, outs):
            most = max(most, len(batch) * len(row) * len(column) * len(out) * method.out_group)
        assert int(shares.partials[index]) == most


def _stages(depth: int) -> int:
    """In how many stages the vendor adds up that many partial results."""
    return 0 if depth == 1 else 3 if depth >= 125 else 2 if depth >= 16 else 1


@pytest.mark.parametrize("depth", [64, 512, 4096, 30_000])
def test_reductions_have_the_stages_of_the_vendor(depth: int) -> None:
    problem = matmul_problem(("half", "float", "half"), 1, 4, depth, 16).flattened()
    method = methods_for(problem, _TARGET.conv)[0]
    splits = candidates_for(problem, method, 1472)
    costs = evaluate(problem, method, splits, _TARGET)
    stages = sum(step.exchanges for step in costs.steps if step.name == "reduce")
    counts = (splits.in_channels * splits.kernel).tolist()
    assert stages.tolist() == [_stages(count) for count in counts]


@pytest.mark.parametrize("proportion", [0.6, 0.2, 0.05])
def test_the_best_candidate_is_chosen(proportion: float) -> None:
    problem = matmul_problem(("half", "float", "half"), 1, 128, 768, 768).flattened()
    plan = Planner(_SMALL).plan(problem, proportion)
    overhead = _SMALL.exchange.sync_cycles + _SMALL.exchange.setup_cycles
    launch = _SMALL.tile.vertex_launch_cycles
    cycles = sum(
        part.compute + part.exchange + part.exchanges * overhead + part.launches * launch
        for part in plan.parts
    )
    for form in (problem, problem.with_operands_swapped()):
        for method in methods_for(form, _SMALL.conv):
            costs = evaluate(form, method, candidates_for(form, method, 64), _SMALL)
            fitting = costs.cycles[costs.temporary <= proportion * _SMALL.tile.memory_bytes]
            assert cycles <= fitting.min(initial=cycles)


def test_less_memory_takes_more_cycles_and_fewer_bytes() -> None:
    problem = matmul_problem(("half", "float", "half"), 1, 512, 4096, 4096)
    planner = Planner(_SMALL)
    wide, narrow = planner.plan(problem, 0.6), planner.plan(problem, 0.05)
    assert narrow.temporary_bytes < wide.temporary_bytes
    assert planner.plan(problem, 0).temporary_bytes <= narrow.temporary_bytes


@pytest.mark.parametrize("lie", [PLACED, TURNED])
@pytest.mark.parametrize("shape", [(1, 128, 64, 96), (4, 7, 3, 1), (1, 64, 512, 1000)])
def test_plans_do_not_follow_from_what_was_asked_before(
    shape: tuple[int, int, int, int], lie: OperandLayout
) -> None:
    problem = matmul_problem(("half", "float", "half"), *shape, inputs_lie=lie)
    planner = Planner(_SMALL)
    for proportion in (0.6, 0.001, 0.05, 0.0, 0.02, 0.3, 5.0):
        assert planner.plan(problem, proportion) == Planner(_SMALL).plan(problem, proportion)


def test_equal_problems_are_planned_once() -> None:
    planner = Planner(_TARGET)
    problem = matmul_problem(("half", "half", "half"), 1, 128, 768, 768)
    first = planner.plan(problem, 0.6)
    assert planner.plan(matmul_problem(("half", "half", "half"), 1, 128, 768, 768), 0.6) is first


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (
            ConvProblem("half", "half", "half", 64, 1, (56, 56), 1, 1, (3, 3), inputs=(56, 56)),
            VertexKind.VMAC,
        ),
        (
            ConvProblem("half", "half", "half", 16, 1, (8, 8), 2, 2, (3, 3), inputs=(8, 8)),
            VertexKind.SLIC,
        ),
        (matmul_problem(("half", "half", "half"), 1, 64, 1, 64), VertexKind.OUTER_PRODUCT),
        (matmul_problem(("float", "float", "float"), 1, 4, 2, 2), VertexKind.HMAC),
        (matmul_problem(("half", "half", "half"), 1, 64, 64, 64), VertexKind.AMP),
    ],
)
def test_methods_that_are_tried(problem: ConvProblem, kind: VertexKind) -> None:
    assert kind in {method.kind for method in methods_for(problem, _TARGET.conv)}


def test_eight_bit_products_need_units_for_them() -> None:
    problem = matmul_problem(("quarter", "half", "half"), 1, 512, 512, 512)
    fast = Planner(find_target("c600")).plan(problem, 0.6)
    slow = Planner(_TARGET).plan(problem, 0.6)
    assert (fast.method.kind, slow.method.kind) == (VertexKind.AMP, VertexKind.HMAC)


@given(st.integers(1, 3000), st.integers(1, 1472), st.integers(2, 20))
def test_split_counts(size: int, most: int, keep: int) -> None:
    counts = split_counts(size, most, keep)
    assert counts[0] == 1
    assert counts == sorted(set(counts))
    assert len(counts) <= keep or size <= 3
    assert counts[-1] <= min(size, most)
    sizes = [-(-size // count) for count in counts]
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize(
    ("batch", "channels", "field", "kernel", "stride"),
    [
        (64, (32, 64), 3, 56, 1),
        (17, (3, 768), 16, 14, 16),  # of patches: the result is larger than the kernel
    ],
)
def test_weight_gradients_become_products(
    batch: int, channels: tuple[int, int], field: int, kernel: int, stride: int
) -> None:
    """The batch is the input channels: with a large kernel in them, units are busy."""
    width = stride * (kernel - 1) + field
    problem = ConvProblem(
        *("half", "float", "half"), 1, channels[0], (field, field), batch, channels[1],
        (kernel, kernel), dilations=(stride, stride), inputs=(width, width),
        inputs_lie=ROWS, weights_lie=ROWS,
    )  # fmt: skip
    plan = Planner(_TARGET).plan(problem, 0.6)
    assert plan.expanded == kernel * kernel
    assert plan.fits
    _check_cover(problem, plan)


@pytest.mark.parametrize("channels", [(64, 64), (256, 512), (1024, 512)])
def test_strides_without_a_kernel_leave_the_field_as_it_is(channels: tuple[int, int]) -> None:
    """Rows and batch are one only where elements between strides have been left out before."""
    dense = ConvProblem("half", "float", "half", 1, 4, (28, 28), *channels, inputs=(28, 28))
    strided = replace(dense, strides=(2, 2), inputs=(56, 56))
    assert strided.flattened() == strided
    assert dense.flattened().field == (1, 4 * 28 * 28)
    plan, quick = (Planner(_TARGET).plan(problem, 0.6) for problem in (strided, dense))
    assert any(part.name == "transform" for part in plan.parts) == (plan.expanded == 1)
    cycles, least = (sum(part.compute + part.exchange for part in p.parts) for p in (plan, quick))
    assert cycles > least
    _check_cover(strided, plan)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "proportion"),
    [(7_680, 768, 768, 0.6), (15_360, 3_072, 768, 0.3), (1_540, 3_072, 768, 0.6)],
)
def test_tiles_that_add_up_results_share_blocks_of_channels(
    rows: int, depth: int, columns: int, proportion: float
) -> None:
    """poplin's pieces of [blocks, field, channels of a block], one behind the other."""
    types = ("half", "half", "half")
    plan = Planner(_TARGET).plan(matmul_problem(types, 1, rows, depth, columns), proportion)
    splits, block = plan.splits, plan.method.out_group
    sharing = splits.in_channels
    assert sharing > 1
    assert not plan.swapped
    blocks = -(-(columns // block) // (splits.serial_out * splits.out_channels))
    field = -(-rows // splits.columns)
    pieces = _ranges(blocks * field, sharing)
    distinct = [len({item // field for item in piece}) for piece in pieces]
    within = [len({item % field for item in piece}) for piece in pieces]
    mine = plan.channels_per_tile / (block * splits.serial_out)
    assert min(distinct) - 1 < mine <= max(distinct)
    if sharing <= blocks:
        assert max(within) == field
    found = plan.outputs_per_tile / plan.channels_per_tile
    assert found == pytest.approx(blocks * field / sharing / mine, rel=0.05)
    assert plan.row_parts(columns) == pytest.approx(columns / plan.channels_per_tile, abs=1)


@pytest.mark.parametrize(("depth", "casts"), [(16, 0), (12, 0), (17, 1)])
def test_sums_of_a_single_block_leave_the_type_of_the_result(depth: int, casts: int) -> None:
    """Poplin's rule: up to 16 halves are added up at once, so nothing wider is kept."""
    problem = matmul_problem(("half", "float", "half"), 1, 6000, depth, 256)
    plan = Planner(_TARGET).plan(problem, 0.6)
    assert [part.name for part in plan.parts].count("cast") == casts
    wide = replace(problem, kernel=(1, 3), inputs=(1, 6002))
    assert "cast" in {part.name for part in Planner(_TARGET).plan(wide, 0.6).parts}
