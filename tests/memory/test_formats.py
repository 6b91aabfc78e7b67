"""Which images lie pixel by pixel, and what is then computed in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from popc.ir import Op, Tensor
from popc.memory import MemoryPlan, check_plan, plan_memory
from popc.schedule import Schedule, build_schedule
from tests.support.small_graphs import SmallGraph


def _conv(small: SmallGraph, x: Tensor, channels: int, size: int = 1) -> Tensor:
    w = small.constant(np.ones((channels, x.type.shape[1], size, size), np.float32))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": (size // 2,) * 4}
    return small("Conv", x, w, group=1, **window)


def _plan(small: SmallGraph) -> tuple[MemoryPlan, Schedule]:
    schedule = build_schedule(small.graph)
    plan = plan_memory(small.graph, schedule, channels_last=True)
    assert check_plan(small.graph, schedule, plan) == []
    return plan, schedule


def _fire(small: SmallGraph) -> tuple[Op, list[Tensor]]:
    """Two images of 16 and 24 channels, one of them changed in place, that are joined."""
    x = _conv(small, small.input(2, 3, 5, 4), 16)
    parts = [small("Relu", _conv(small, x, 16)), _conv(small, x, 24, 3)]
    joined = small.op("Concat", *parts, axis=1)
    small.output(_conv(small, joined.output, 16))
    return joined, parts


def test_parts_of_pixels_are_computed_where_concat_wants_them() -> None:
    small = SmallGraph()
    joined, parts = _fire(small)
    plan, _ = _plan(small)
    whole = plan.placements[joined.output]
    assert whole.strides == (20 * 160, 4, 4 * 160, 160)
    assert plan.joined == {joined: frozenset({0, 1})}
    assert plan.placements[parts[0]] == whole
    assert plan.placements[parts[1]] == replace(whole, offset=whole.offset + 64)


def test_what_was_joined_is_joined_again() -> None:
    small = SmallGraph()
    x = _conv(small, small.input(2, 3, 5, 4), 16)
    joins: list[Op] = []
    for _ in range(3):
        joins.append(small.op("Concat", x, _conv(small, x, 16), axis=1))
        x = joins[-1].output
    small.output(_conv(small, x, 16))
    plan, _ = _plan(small)
    assert plan.joined == {join: frozenset({0, 1}) for join in joins}
    places = [plan.placements[join.output] for join in joins]
    assert places[0] == places[1] == places[2]


def test_the_checker_sees_parts_that_overlap() -> None:
    small = SmallGraph()
    _, parts = _fire(small)
    plan, schedule = _plan(small)
    place = plan.placements[parts[0]]
    moved = {**plan.placements, parts[0]: replace(place, offset=place.offset + 4)}
    problems = check_plan(small.graph, schedule, replace(plan, placements=moved))
    assert any("share memory" in problem for problem in problems)
    assert any("not where the output wants it" in problem for problem in problems)


def test_a_part_that_is_seen_in_another_way_is_copied() -> None:
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 5, 4), 16)
    parts = [_conv(small, x, 16), _conv(small, x, 16)]
    turned = small("Transpose", parts[1], perm=(0, 2, 3, 1))
    joined = small.op("Concat", *parts, axis=1)
    small.output(_conv(small, joined.output, 16), small("Neg", turned))
    assert _plan(small)[0].joined == {joined: frozenset({0})}


def test_channels_change_their_order_within_pixels() -> None:
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 5, 5), 32)
    apart = small("Reshape", x, shape=(1, 4, 8, 5, 5))
    turned = small("Transpose", apart, perm=(0, 2, 1, 3, 4))
    shuffled = small.op("Reshape", turned, shape=(1, 32, 5, 5))
    small.output(_conv(small, shuffled.output, 32))
    plan, _ = _plan(small)
    assert plan.placements[shuffled.output].strides == (3200, 4, 640, 128)
    assert [op for op in small.graph.ops if op.op_type == "Reshape" and op not in plan.views] == [
        shuffled
    ]


def test_images_stay_in_pixels_where_they_are_scaled() -> None:
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 7, 7), 32)
    mean = small("ReduceMean", x, axes=(2, 3), keepdims=1)
    scaled = small("Mul", x, small("Sigmoid", _conv(small, mean, 32)))
    small.output(_conv(small, scaled, 32))
    plan, _ = _plan(small)
    assert plan.placements[x].strides == plan.placements[scaled].strides == (6272, 4, 896, 128)


@pytest.mark.parametrize("source", ["input", "random", "constant"])
def test_a_turned_tensor_of_another_shape_is_no_shuffle(source: str) -> None:
    """Nor need its producer have operands."""
    small, shape = SmallGraph(), (1, 8, 16, 4)
    if source == "input":
        x = small("HostLoad", shape=shape, dtype="float32", stream="x")
    elif source == "random":
        x = small("RandomNormal", shape=shape, to="float32", mean=0.0, scale=1.0)
    else:
        x = small.constant(np.ones(shape))
    turned = small("Transpose", x, perm=(0, 2, 1, 3))
    image = small("Reshape", turned, shape=(1, 16, 2, 16))
    small.output(_conv(small, small("Relu", image), 16))
    plan, _ = _plan(small)
    assert plan.placements[image].strides is None


@pytest.mark.parametrize(("reader", "last"), [("Conv", True), ("Reshape", False)])
def test_readers_of_parts_count(reader: str, *, last: bool) -> None:
    """Of an image that only a Slice reads, and of a map of the part."""
    small = SmallGraph()
    x = _conv(small, small.input(2, 3, 5, 4), 32)
    part = small("Slice", x, starts=(0, 8, 0, 0), sizes=(2, 24, 5, 4), steps=(1, 1, 1, 1))
    if reader == "Conv":
        changed = small("Relu", part)
        small.output(_conv(small, changed, 16))
        images = [x, changed]
    else:
        small.output(small("Reshape", part, shape=(2, 24 * 20)))
        images = [x]
    plan, _ = _plan(small)
    strides = [plan.placements[image].strides or (0, 0) for image in images]
    assert [steps[1] == 4 for steps in strides] == [last] * len(images)


@pytest.mark.parametrize(
    ("listed", "order", "last"),
    [
        ((2, 16, 20), (0, 2, 1), True),
        ((2, 16, 20), (1, 0, 2), False),
        ((2, 4, 80), (0, 2, 1), False),
    ],
)
def test_pixels_that_are_listed_are_rows_of_channels(
    listed: tuple[int, ...], order: tuple[int, ...], *, last: bool
) -> None:
    """As a vision transformer does with its patches: both ops are views then."""
    small = SmallGraph()
    image = _conv(small, small.input(2, 3, 5, 4), 16)
    pixels = small.op("Reshape", image, shape=listed)
    rows = small.op("Transpose", pixels.output, perm=order)
    small.output(small("Neg", rows.output))
    plan, _ = _plan(small)
    assert (plan.placements[image].strides == (20 * 64, 4, 4 * 64, 64)) == last
    assert {pixels, rows} <= plan.views or not last


@pytest.mark.parametrize(
    ("few", "dilation", "is_last"), [(4, 1, True), (8, 1, True), (2, 1, False), (4, 2, False)]
)
def test_groups_of_few_channels(few: int, dilation: int, *, is_last: bool) -> None:
    """Those that the runtime computes row by row read and write rows of channels."""
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 9, 9), 32)
    w = small.constant(np.ones((32, few, 3, 3), np.float32))
    window = {"strides": (1, 1), "dilations": (dilation,) * 2, "pads": (dilation,) * 4}
    y = small("Conv", x, w, group=32 // few, **window)
    small.output(_conv(small, y, 16))
    plan, _ = _plan(small)
    assert [plan.placements[image].strides is not None for image in (x, y)] == [is_last] * 2


@pytest.mark.parametrize(("channels", "is_last"), [(12, False), (16, True)])
def test_few_channels(channels: int, *, is_last: bool) -> None:
    """They fill no vector: a convolution that makes them neither writes rows, nor gains by them."""
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 9, 9), channels)
    y = _conv(small, _conv(small, x, 32), channels)
    small.output(_conv(small, y, channels))
    plan, _ = _plan(small)
    assert [plan.placements[image].strides is not None for image in (x, y)] == [is_last] * 2


_LINES_AND_VOLUMES = {1: (768, 4, 128), 3: (15360, 4, 3840, 768, 128)}


@pytest.mark.parametrize("axes", _LINES_AND_VOLUMES)
@pytest.mark.parametrize(("group", "is_last"), [(1, True), (2, True), (32, False)])
def test_lines_and_volumes(group: int, axes: int, *, is_last: bool) -> None:
    """They are images, but for convolutions of groups of few channels."""
    small = SmallGraph()
    ones = (1,) * axes
    window = {"strides": ones, "dilations": ones, "pads": ones * 2}
    first = small.constant(np.ones((32, 3, *[3] * axes), np.float32))
    image = small.input(1, 3, *(4, 5, 6)[-axes:])
    x = small("Relu", small("Conv", image, first, group=1, **window))
    second = small.constant(np.ones((32, 32 // group, *[3] * axes), np.float32))
    y = small("Conv", x, second, group=group, **window)
    small.output(small("ReduceMean", y, axes=tuple(range(2, axes + 2)), keepdims=0))
    plan, _ = _plan(small)
    wanted = _LINES_AND_VOLUMES[axes] if is_last else None
    assert [plan.placements[image].strides for image in (x, y)] == [wanted] * 2


@pytest.mark.parametrize("reader", ["Conv", "output", "Reshape"])
def test_maps_gain_if_their_readers_do(reader: str) -> None:
    """Otherwise the convolution before them writes planes: turning takes longer than a map."""
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 7, 7), 32)
    y = small("Sigmoid", small("Tanh", x))
    if reader == "Conv":
        y = _conv(small, y, 32)
    small.output(small("Reshape", y, shape=(32, 49)) if reader == "Reshape" else y)
    plan, _ = _plan(small)
    assert (plan.placements[x].strides is not None) == (reader == "Conv")


@pytest.mark.parametrize(
    ("channels", "filters", "size", "width", "is_last"),
    [
        (20, 24, 5, 30, False),
        (20, 24, 5, 15, True),  # rows do not fill a vector
        (20, 32, 5, 30, True),  # channels of the result do
        (32, 20, 5, 30, True),  # what it reads does
        (20, 20, 1, 30, True),  # a product
        (24, 24, 3, 30, True),  # by Winograd's algorithm
    ],
)
def test_channels_that_leave_lanes_empty(
    channels: int, filters: int, size: int, width: int, *, is_last: bool
) -> None:
    """A convolution reads planes if pixels of a row fill vectors better than its channels."""
    small = SmallGraph()
    x = _conv(small, small.input(1, 3, 9, width), channels)
    small.output(_conv(small, x, filters, size))
    plan, _ = _plan(small)
    assert (plan.placements[x].strides is not None) == is_last
