"""Formulas beside numbers worked out by hand from the vendor's estimators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from popc.cost.formulas import elementwise, links, movement, reduce
from popc.cost.formulas.amp import (
    AmpTypes,
    TileConv,
    conv_1x1,
    conv_nx1,
    inner_1x1,
    weight_load,
    zero_partials,
)
from popc.cost.formulas.mac import (
    dot_product,
    horizontal_mac,
    outer_product,
    slic,
    slic_quarter,
    vertical_mac,
    winograd_data,
    winograd_inverse,
    winograd_kernel,
)
from popc.cost.formulas.numbers import ceil_div, pick, round_up
from popc.target import find_target

_HALF = AmpTypes(16)
_HALF_TO_FLOAT = AmpTypes(8, float_partials=True)
_FLOAT = AmpTypes(16, float_inputs=True, float_partials=True)


def test_a_panel_of_weights_is_512_bytes() -> None:
    assert weight_load(16, 16) == 32
    assert weight_load(16, 8) == 64


@pytest.mark.parametrize(
    ("types", "elements", "zero", "cycles"),
    [
        (_HALF, 6, True, 6 * 32),  # one element each
        (_HALF, 12, False, 6 * 42),
        (_HALF, 18, True, 6 * 37),
        (_HALF, 18, False, 6 * 38),
        (_HALF, 60, False, 6 * (38 + 4 * 7)),
        (_HALF_TO_FLOAT, 60, True, 6 * (37 + 4 * 7)),
        (_FLOAT, 6, False, 6 * 47),
        (_FLOAT, 60, False, 6 * (46 + 8 * 7)),
        (_FLOAT, 60, True, 6 * (46 + 2 + 8 * 10 + 8 * 7)),
        (AmpTypes(8), 60, True, 6 * (41 + 2 + 2 * 10 + 4 * 7)),
    ],
)
def test_workers_of_conv_1x1(types: AmpTypes, elements: int, zero: bool, cycles: int) -> None:  # noqa: FBT001 - a column of the table
    # The tile waits for the slowest worker, and 14 cycles more for the last one to start.
    assert int(inner_1x1(types, elements, zero=zero)) == cycles + 14


def test_conv_1x1_of_one_panel() -> None:
    first = 6 * (37 + 4 * 7 - 7) + 14  # ten elements each, state kept from call to call
    expected = 50 + 6 * 7 + 13 + (11 + (19 - 1 + (7 + 64 + first)))
    assert int(conv_1x1(_HALF, TileConv(1, 1, 1, 1, 60), 8)) == expected


def test_conv_1x1_of_several_panels() -> None:
    first = 6 * (37 + 4 * 7 - 7) + 14
    later = 6 * (38 + 4 * 7 - 7) + 14
    setup = 6 * (7 + 3 * (3 - 1))
    rest = 2 * (15 + 2 * (19 + 6 + 64 + later))
    expected = 50 + setup + 13 + rest + 11 + 2 * (18 + 7 + 64 + first)
    assert int(conv_1x1(_HALF, TileConv(1, 3, 2, 1, 60), 8)) == expected


def test_conv_nx1_by_hand() -> None:
    # 3 x 3 kernel, 6 rows of 10: one row of 10 for each worker; the last one begins 9 cycles later.
    worker = 17 + 1 + (3 - 9 + 34 + 4 * 7)
    slowest = 6 * worker + 9
    inner = 3 * (14 + 3 * (12 + 64 + 15 + 3)) + 9 * slowest
    outer = 109 + 9 * 6 + 6 * 10 + (17 + 1) + 1 + (16 + (14 + (14 + inner)))
    zero = 6 * (ceil_div(60 * 16 // 6, 4) + 5)
    tile = TileConv(1, 1, 1, 6, 10, kernel_y=3, kernel_x=3)
    assert int(conv_nx1(_HALF, tile, 8)) == outer + zero
    assert int(zero_partials(_HALF, tile)) == zero


def test_conv_nx1_of_rows_that_workers_do_not_divide() -> None:
    # 4 rows of 9, six elements each: the second worker has three of one row and three of the next.
    worker = 17 + 1 + 2 * (3 - 9 + 34)
    one = 17 + 1 + (3 - 9 + 34 + 4 * 3)
    got = conv_nx1(_HALF, TileConv(1, 1, 1, 4, 9), 8)
    rows = conv_nx1(_HALF, TileConv(1, 1, 1, 6, 6), 8)
    assert int(got) - int(rows) == 6 * worker - (6 * one + 9)


def test_conv_nx1_of_bytes_by_hand() -> None:
    # 2 x 3 kernel, a row of 10 for each worker.
    slowest = 6 * (18 + 22 + 29 + 4 * 7) + 9
    row = 5 * 6 + 3 + (9 * 6 + 13 + 36) + 64 + 2 * (7 * 6 + 8 + 36 + 64)
    inner = 2 * row + 6 * slowest
    outer = 83 + (5 * 6 + 7) + (8 * 6 + 10) + (8 * 6 + 13) + inner
    tile = TileConv(1, 1, 1, 6, 10, kernel_y=2, kernel_x=3)
    quarter = AmpTypes(16, quarter_inputs=True)
    assert int(conv_nx1(quarter, tile, 8)) == outer + int(zero_partials(quarter, tile))


def test_fp8_takes_twice_the_channels() -> None:
    quarter = AmpTypes(16, quarter_inputs=True)
    many = int(conv_1x1(quarter, TileConv(1, 8, 8, 1, 6000), 8))
    half = int(conv_1x1(_HALF, TileConv(1, 16, 8, 1, 6000), 8))
    assert half / many == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("types", "depth", "peak"), [(_HALF, 16, 64), (_HALF_TO_FLOAT, 16, 32), (_FLOAT, 8, 16)]
)
def test_long_products_come_near_the_peak(types: AmpTypes, depth: int, peak: int) -> None:
    elements, ins, outs = 6000, 16, 8
    cycles = int(conv_1x1(types, TileConv(1, ins, outs, 1, elements), 8))
    macs = elements * ins * depth * outs * types.units
    assert 0.8 * peak < macs / cycles <= peak


def test_outer_products() -> None:
    assert outer_product(6, 16, 16, float_types=False) == 6 * (25 + 10 + (6 + 1))
    assert outer_product(6, 16, 8, float_types=False) == 6 * (25 + 2 * (10 + (10 + 20)))
    assert outer_product(12, 8, 8, float_types=True) == 6 * (25 + 11 + 2 * (6 + 1))


def test_dot_products() -> None:
    assert dot_product(16, float_inputs=False, float_partials=True) == 3 + 3 + 1 + 4 - 1
    assert dot_product(16, float_inputs=False, float_partials=False) == 6 + 1 + 3 + 1 + 4 - 1
    assert dot_product(7, float_inputs=True, float_partials=True) == 3 + 3 + 1 + 1 + 14


def test_horizontal_mac() -> None:
    dot = dot_product(4, float_inputs=True, float_partials=True)
    inner = 6 * (16 + 19 + 10 * (7 + dot) + 16)
    got = horizontal_mac(
        1, 1, 1, 6, 10, 1, in_channels=4, out_channels=1, float_inputs=True, float_partials=True
    )
    assert int(got) == 58 + 23 + 15 + 10 + inner


def test_winograd() -> None:
    assert winograd_data(8, float_types=False) == 13 + 56 * 2
    assert winograd_kernel(8, float_types=True) == 2 + 35 * 4
    assert winograd_inverse(6, float_types=False) == 15 + 30 * 2


def test_sliding_windows() -> None:
    # One group of four channels; a row of 9 results for each worker, which passes twice.
    row = 15 + 4
    first = 6 * (17 + 2 * row + 10 + 1)
    got = slic(1, 1, 6, 9, channels=4)
    assert int(got) == 28 + 15 + 6 + (18 + 16 + 20 + 6) + first
    assert int(slic(1, 1, 6, 9, channels=4, chains=4)) == int(got) - 6 * row
    # Later positions add to what is there, and need not look whether they are the first.
    later = int(slic(1, 2, 6, 9, channels=4)) - int(got)
    assert later == 18 + 16 + 20 + 6 + 6 * (17 + 2 * row + 10)


def test_sliding_windows_over_bytes() -> None:
    # A row of 9 results for each worker, in two passes; the second of two positions adds to them.
    first, later = 6 * (20 + 24 + 2 * (14 + 4)), 6 * (20 + 24 + 2 * (18 + 12 + 4))
    calls = 2 * (36 + 38) + (6 * 6 + 12) + (5 * 6 + 8)
    assert int(slic_quarter(1, 2, 6, 9, 1)) == 43 + (13 * 6 + 15) + calls + first + later


def test_depthwise_vertex() -> None:
    # Four groups, 3 x 3 positions, 8 results: every worker has one and a column of another one.
    inner = 6 * (19 + 3 * ((7 + 5 + 3 + 2 * 2) + (7 + 5 + 3)))
    zero = 6 * (4 + 8 * 4 // 2)
    adding = 6 * (9 + (9 + 2 * 5) * 2)
    got = vertical_mac(1, 1, 8, (3, 3), lanes=4, float_partials=True)
    assert int(got) == 61 + 14 + 26 + zero + 32 + 24 + inner + adding
    twice = vertical_mac(1, 2, 8, (3, 3), lanes=4, float_partials=True)
    assert int(twice) - int(got) == 24 + inner


def test_workers_of_few_results_share_the_columns_of_the_kernel() -> None:
    # A gradient by weights: two results, so three workers have a third of 112 columns each.
    alone = vertical_mac(1, 1, 6, (10, 38), lanes=4, float_partials=True)
    shared = vertical_mac(1, 1, 2, (10, 112), lanes=4, float_partials=True)
    assert int(alone) - int(shared) == 6 * (4 * 4 // 2)  # but for zeros of what is written


def test_windows_of_more_groups_side_by_side_follow_each_other() -> None:
    four = slic(1, 3, 12, 20, channels=1, chains=4)
    sixteen = slic(1, 3, 12, 20, channels=1, lanes=16, chains=4)
    assert 4 * four < sixteen < 4.4 * four


def test_more_work_takes_longer() -> None:
    assert slic(2, 3, 12, 20, channels=4) < slic(4, 3, 12, 20, channels=4)
    assert slic(2, 3, 12, 20, channels=4) < slic(2, 3, 12, 40, channels=4)
    for lanes in (4, 8, 16):
        small = vertical_mac(1, 1, 48, (3, 3), lanes=lanes, float_partials=True)
        assert small < vertical_mac(2, 1, 48, (3, 3), lanes=lanes, float_partials=True)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        # 600 elements on a tile: 100 for each worker.
        (elementwise.binary("add", "half", 600), 6 * (26 + 25 * 3) + 11),
        (elementwise.binary("add", "float", 600), 6 * (29 + 50 * 3) + 11),
        (elementwise.binary("divide", "half", 600), 6 * (26 + 25 * 21) + 11),
        (elementwise.binary("add", "half", 600, inplace=True), 6 * (58 + 25 * 3) + 11),
        (elementwise.broadcast("add", "half", 600), 6 * (20 + 25 * 2) + 11),
        (elementwise.unary("exp", "float", 600), 6 * (33 + 50 * 6) + 20),
        (elementwise.unary("relu", "half", 600), 6 * (17 + 25 * 3) + 20),
        (elementwise.unary("rsqrt", "half", 600, inplace=True), 6 * (55 + 25 * 19) + 20),
        (elementwise.unary("sin", "float", 6), 6 * (17 + 2304) + 20),
        (elementwise.cast("half", "float", 600), 12 + 6 * (18 + 19 + 50)),
        (elementwise.cast("float", "half", 600), 12 + 6 * (18 + 19 + 25 * 2)),
        (elementwise.select(600), 6 * (5 + 6 + 500)),
        (elementwise.fill(80), 6 * (23 + 10)),
        (movement.exchange_cycles(401, 4), 101),
        (movement.multi_slice(10, 5, 64, element_bytes=2), 6 * (30 + 10 * (19 + 64) + 40)),
        (movement.dynamic_slice(600, 2, 4), 25 + 6 * (39 + (24 + 50) * 2)),
        (elementwise.scaled_add("half", 600), 57 + 6 * (15 + 6 + 3 * 24 + 3)),
        (elementwise.scaled_add("float", 600), 57 + 6 * (15 + 6 + 3 * 49 + 3)),
        (elementwise.bias_add("float", 600, 10), 13 + 6 * (17 + 6 + 5 * (8 + 2 * 10) + 1)),
        (elementwise.bias_add("half", 600, 16), 13 + 6 * (19 + 7 + 2 * (15 + 2 * 6))),
        (elementwise.non_linear("tanh", "half", 600), 9 + 6 * (20 + 2 + 2 + 24 * 3 + 5)),
        (elementwise.non_linear("gelu", "float", 600), 9 + 6 * (20 + 2 + 20 + 49 * 11 + 5)),
        (elementwise.non_linear("relu_grad", "half", 600), 9 + 6 * (20 + 4 + 24 * 4 + 8)),
        (elementwise.broadcast("add", "half", 600, rows=12), 6 * (15 + 25 * 2 + 25 * 2) + 11),
        (
            movement.multi_update(3, 2, 8, float_type=True),
            6 * (3 + 30 + 4 + 2 + 3 * (11 + 7 * 3) + 10),
        ),
        (
            movement.multi_update(3, 2, 8, float_type=False),
            6 * (3 + 30 + 4 + 3 * (12 + 3 * 3) + 10),
        ),
        (movement.copy_cycles((10_000, 8)), 587 + 4_404),
        (movement.copy_cycles((10_000, 4)), 587 + 31_250),
        (movement.copy_cycles((10_000, 2)), 587 + 51_484),
        (movement.copy_cycles((5_832, 1)), 587 + 51_747),  # 52,333 in a recorded profile
        (movement.smallest_piece(729), 1),
        (movement.smallest_piece(768), 8),
        (movement.smallest_piece(2 * 198), 4),
        (movement.smallest_piece(2 * 197), 2),
        (reduce.continuous(2, 100, "half"), 17 + 2 * 25 + 12 * 2),
        (reduce.continuous(1, 7, "float"), 17 + 3 + 12 + 2),
        (reduce.strided(8, 10, "float", result="float"), 15 + 4 * (3 + 5 + 3 + 9)),
        (reduce.strided(8, 10, "half", result="float"), 15 + 2 * (3 + 7 + 3 + 9)),
        (
            reduce.strided(8, 32, "half", result="half", maximum=True),
            15 + 2 * (3 + 8 + 3 + 31),
        ),
        # Two columns and one: begin, store, fetch the pointer; then load, check and loop by row.
        (
            reduce.irregular(3, 10, "half", result="float"),
            63 + (4 + 5 + 10 + 10 * 6) + (4 + 3 + 10 + 10 * 6),
        ),
        (
            reduce.irregular(10, 4, "half", result="half", maximum=True),
            (7 + 3 + 23 + 16 + 6 + 2 * 2 + 2)
            + 2 * (3 + 2 * 4 + 1 + 10 + 4 * (2 + 1 + 3))
            + (2 + 2 * 2 + 10 + 4 * (2 + 1 + 3)),
        ),
        (movement.rearrange_cycles(800, element_bytes=2, memcpy=8, aligned=True), 500),
        (movement.rearrange_cycles(900, element_bytes=4, memcpy=8, aligned=False), 375),
        (movement.random_cycles(400, "half"), 4 + 138 + 400),
        (
            reduce.conv_reduce(48, 4, float_partials=True, float_output=False),
            6 * (32 + (3 * 4 + 6) * 2),
        ),
        (
            reduce.conv_reduce(96, 4, float_partials=False, float_output=False),
            6 * (32 + (3 * 4 + 8) * 2),
        ),
        (
            reduce.conv_reduce(48, 4, float_partials=True, float_output=True, fast=True),
            33 + 6 * (20 + (4 + 8) * 2),
        ),
    ],
)
def test_vertices(got: int, expected: int) -> None:
    assert int(got) == expected


def test_every_op_of_the_tables_has_a_cost() -> None:
    tables: list[tuple[dict[str, dict[str, elementwise.Speed]], Callable[..., int]]] = [
        (elementwise.UNARY, elementwise.unary),
        (elementwise.BINARY, elementwise.binary),
    ]
    for table, formula in tables:
        for name in table:
            for lanes in ("half", "float", "int"):
                assert 0 < formula(name, lanes, 6) < formula(name, lanes, 6000)
    for name in elementwise.NON_LINEAR:
        assert elementwise.non_linear(name, "half", 600) < elementwise.non_linear(
            name, "float", 600
        )


def test_links() -> None:
    target = find_target("ipu2")
    seconds = links.link_cycles(target, 10**9) / target.tile.clock_hz
    assert seconds == pytest.approx(8e9 / (128 * 2**30 * 0.85 * 2), rel=1e-6)
    assert links.all_reduce_bytes(1000, 4) == 1500
    assert links.global_sync(target, 1) == 150
    assert links.global_sync(target, 4) == 600 + 80  # 15 ns over two hops, there and back
    assert links.link_cycles(find_target("c600"), 1000) > 0


def test_numbers_and_arrays_give_the_same() -> None:
    counts = np.arange(1, 200)
    arrays = conv_1x1(_HALF, TileConv(1, 2, 3, 1, counts), 8)
    singles = [int(conv_1x1(_HALF, TileConv(1, 2, 3, 1, int(count)), 8)) for count in counts]
    assert arrays.tolist() == singles
    assert pick(7, 1, 2) == 2
    assert round_up(9, 4) == 12
