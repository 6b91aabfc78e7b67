"""The automatic division of models, against all ways to divide them."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import popc
from popc.placement.splitting import balanced_cuts, best_cuts_naively
from popc_runtime.errors import OptionError
from tests.placement.networks import layered
from tests.training.deep import DEEP, compiled


@given(
    st.lists(st.integers(0, 20), min_size=4, max_size=9),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=4).filter(any),
    st.randoms(use_true_random=False),
)
def test_no_way_to_cut_is_more_even(costs: list[int], shares: list[float], random: Random) -> None:
    crossing = [random.randint(0, 9) for _ in range(len(costs) + 1)]
    cuts = balanced_cuts(costs, shares, crossing)
    assert cuts[0] == 0
    assert cuts[-1] == len(costs)
    loads: list[float] = []
    for share, (start, end) in zip(shares, pairwise(cuts), strict=True):
        assert (end > start) == (share > 0)
        if share:
            loads.append(sum(costs[start:end]) / share)
    assert max(loads) == pytest.approx(best_cuts_naively(costs, shares))


def test_of_equal_cuts_the_cheapest_is_taken() -> None:
    assert balanced_cuts([1, 0, 0, 1], [1, 1], [9, 9, 5, 9, 9]) == (0, 2, 4)


def _bytes_of_weights(**options: Any) -> list[int]:
    done = compiled(DEEP["mlp"](), virtual_graph_mode="auto", accumulation_factor=2, **options)
    chips: dict[int, int] = {}
    for part in done.graph.walk():
        for op in part.ops:
            if op.op_type == "CopyVarUpdate":
                chip = op.settings.virtual_graph
                assert chip is not None
                chips[chip] = chips.get(chip, 0) + op.operand(0).type.nbytes
    return [chips[chip] for chip in sorted(chips)]


def test_chips_get_what_the_ratios_say() -> None:
    even = _bytes_of_weights(num_ipus=2)
    assert max(even) < 1.3 * min(even)
    uneven = _bytes_of_weights(num_ipus=2, virtual_graph_split_ratios=[1, 3])
    assert 2 * uneven[0] < uneven[1]
    assert len(_bytes_of_weights(num_ipus=4, virtual_graph_split_ratios=[1, 0, 1, 0])) == 2


def test_too_few_ops() -> None:
    model = layered([None])
    options = {"virtual_graph_mode": "auto", "num_ipus": 16}
    with pytest.raises(OptionError, match=r"ops cannot be divided among 16 chips"):
        popc.compile(model, options=options)
