"""On the networks of the samples the search for the lowest peak comes to an end."""

from __future__ import annotations

import pytest

from benchmarks.schedules import Subject, sample_networks
from popc.memory import plan_memory
from popc.schedule import build_schedule, check_schedule, compare_algorithms, measure_liveness

_SUBJECTS = [subject for subject in sample_networks() if "24 layers" not in subject.name]


@pytest.mark.parametrize("subject", _SUBJECTS, ids=[item.name for item in _SUBJECTS])
def test_the_peak_is_proven_to_be_the_lowest(subject: Subject) -> None:
    graph = subject.graph()
    schedule = build_schedule(graph)
    assert check_schedule(graph, schedule) == []
    assert all(report.is_proven for report in schedule.reports)
    peak = measure_liveness(graph, schedule.orders).peak
    assert all(peak <= report.peak for report in compare_algorithms(graph))
    plan = plan_memory(graph, schedule)
    assert plan.peak_bytes == peak
    assert plan.arena_bytes <= 1.05 * peak
