"""Pools are planned as popnn does it: parts of channels, batch and field on tiles."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

import popc
from benchmarks.layer_models import model_of
from benchmarks.layers import read_layers
from popc.cost.formulas.pooling import PoolWork, pooling
from popc.cost.planner import PoolProblem, plan_pool
from popc.target import find_target

_TARGET = find_target("ipu2")
_POOL = PoolProblem(
    batch=1,
    channels=64,
    results=(73, 73),
    operands=(147, 147),
    kernel=(3, 3),
    strides=(2, 2),
    pads=(0, 0),
    block=16,
    lanes="half",
    maximum=True,
    backward=False,
)


def test_vertex() -> None:
    """36 results for six workers, a row of 6 each; 9 positions, two groups of four vectors."""
    work = PoolWork(rows=4, columns=9, groups=2, vectors=4, positions=9, stride=1)
    group = 1 + 4 * (2 + 4 + 3 * 5 + 1) + 1
    row = 13 + 9 * (20 + 2 * group + 4 + 3) + 2
    begin = 17 + 2 + 2 * (4 + 24) + 6 + 2 + 2 + 1 + 10
    assert pooling(work, maximum=True, backward=False) == 13 + 6 * (begin + row + 1)


def test_vertex_of_a_gradient() -> None:
    """Workers have three results in a row, of which a position of the window reaches two."""
    work = PoolWork(rows=2, columns=9, groups=1, vectors=4, positions=6, stride=2)
    group = 1 + 4 * (2 + 7 + 5 * 1 + 1) + 1
    row = 13 + 6 * (20 + group + 3) + 2
    begin = 17 + 2 + (4 + 12) + 6 + 2 + 2 + 1 + 10 + 10
    assert pooling(work, maximum=True, backward=True) == 13 + 6 * (begin + row + 1)


def test_parts_cover_all_results() -> None:
    plan = plan_pool(_POOL, _TARGET)
    assert plan.results * plan.tiles >= 64 * 73 * 73
    assert plan.tiles <= _TARGET.compute_tiles
    assert plan.block == 16


def test_windows_reach_over_the_rim() -> None:
    """On one tile all of the operands are read; on many, more than their share."""
    plan = plan_pool(_POOL, _TARGET)
    assert plan.operands > 4 * plan.results
    assert plan.operands * plan.tiles > 64 * 147 * 147


def test_gradients_read_fewer_elements_than_they_make() -> None:
    back = replace(_POOL, results=(147, 147), operands=(73, 73), backward=True)
    plan = plan_pool(back, _TARGET)
    assert plan.operands < plan.results


@pytest.mark.parametrize("channels", [1, 3, 20])
def test_few_channels_fill_vectors(channels: int) -> None:
    """Channels are padded to a multiple of 64 bits."""
    plan = plan_pool(replace(_POOL, channels=channels, block=min(channels, 16)), _TARGET)
    assert plan.block % 4 == 0
    assert plan.results * plan.tiles >= ceil(channels / 4) * 4 * 73 * 73


def test_fields_have_any_number_of_axes() -> None:
    line = replace(_POOL, results=(500,), operands=(1000,), kernel=(2,), strides=(2,), pads=(0,))
    volume = replace(
        _POOL,
        results=(8,) * 3,
        operands=(16,) * 3,
        kernel=(2,) * 3,
        strides=(2,) * 3,
        pads=(0,) * 3,
    )
    assert plan_pool(line, _TARGET).compute > 0
    assert plan_pool(volume, _TARGET).compute > 0


def _steps_of(kind: str) -> list[tuple[str, int]]:
    """Names and exchanges of the steps of a gradient."""
    layer = next(layer for layer in read_layers() if layer.kind == "pool")
    model = model_of(layer)
    model.graph.node[0].op_type = kind
    report = popc.estimate(
        model,
        options={"target": "ipu2"},
        loss={"type": "identity", "input": "loss"},
        optimizer={"type": "sgd", "learning_rate": 0.1},
    )
    op = next(op for op in report.ops if op.op_type == f"{kind}Grad")
    return [(phase.name, phase.exchanges) for phase in op.phases]


def test_gradients_of_maxima_go_to_where_these_lie_first() -> None:
    """poolInputGradientImpl copies them, as all three operands go through windows; not of sums."""
    assert _steps_of("MaxPool") == [("gradient", 1), ("operands", 1), ("pool", 0)]
    assert _steps_of("AveragePool") == [("operands", 1), ("pool", 0)]
