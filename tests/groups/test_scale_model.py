"""The model of many processes: its formula beside its simulation, and both beside bounds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scale_model import (
    Network,
    all_reduce_seconds,
    simulated_all_reduce,
    simulated_step,
)

_NETWORKS = [
    Network(latency=2e-6, overhead=1e-6, bandwidth=12.5e9, adding=10e9),
    Network(latency=50e-6, overhead=5e-6, bandwidth=1.25e9, adding=10e9),
]


@pytest.mark.parametrize("network", _NETWORKS)
@pytest.mark.parametrize(("processes", "replicas"), [(1, 4), (2, 2), (3, 1), (16, 1), (100, 2)])
def test_the_formula_is_what_is_simulated(network: Network, processes: int, replicas: int) -> None:
    """Where all begin at once, no process waits for a line."""
    for nbytes in (0.0, 4e3, 1e8):
        ends = simulated_all_reduce(network, [0.0] * processes, replicas, nbytes)
        expected = all_reduce_seconds(network, processes, replicas, nbytes)
        np.testing.assert_allclose(ends, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("network", _NETWORKS)
def test_nobody_is_done_before_the_last_has_begun(network: Network) -> None:
    starts = list(np.random.default_rng(0).random(32) * 1e-2)
    ends = simulated_all_reduce(network, starts, 1, 1e6)
    alone = all_reduce_seconds(network, 32, 1, 1e6)
    assert min(ends) > max(starts) + network.latency
    assert max(ends) <= max(starts) + 2 * alone
    assert max(ends) >= max(starts) + network.latency


def test_lines_carry_what_they_can() -> None:
    """However late some begin, a process receives no faster than its line allows."""
    network = Network(latency=0.0, overhead=0.0, bandwidth=1e9, adding=1e30)
    starts = [0.0] * 7 + [1.0]
    ends = simulated_all_reduce(network, starts, 1, 8e9)
    assert ends[-1] >= 1 + 2 * 7.0
    step, waits = simulated_step(network, 8, 1, [8e9], lambda rank: float(rank == 7))
    assert step == max(ends)
    assert waits == pytest.approx(sum(np.subtract(ends, starts)) / 8)
