"""What each pass makes of small graphs, that results stay the same, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from popc.ir import Graph, format_graph, verify
from popc_runtime.format import Array
from tests.support.graph_text import format_constants, parse_graph
from tests.support.host_runs import HostRun
from tests.transforms.fixture_files import (
    FOLDER,
    Fixture,
    fixture_names,
    read_fixtures,
    write_fixtures,
)

_NAMES = fixture_names()
_FIXTURES = [fixture for name in _NAMES for fixture in read_fixtures(name)]


def _changed(fixture: Fixture, graph: Graph) -> str | None:
    """What the pass makes of ``graph``; ``None``: it says that it has changed nothing."""
    report = fixture.make()(graph, check=True)
    return format_graph(graph) if report.changes else None


@pytest.mark.parametrize("name", _NAMES)
def test_every_pass_and_rule_has_a_graph_that_changes_and_one_that_stays(name: str) -> None:
    assert {fixture.after is None for fixture in read_fixtures(name)} == {True, False}


def test_every_file_belongs_to_a_pass_or_rule() -> None:
    assert {str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.txt")} == {
        *_NAMES
    }


@pytest.mark.parametrize("name", _NAMES)
def test_prints_before_and_after(name: str, pytestconfig: pytest.Config) -> None:
    fixtures = read_fixtures(name)
    found = [_changed(fixture, parse_graph(fixture.before)) for fixture in fixtures]
    if pytestconfig.getoption("--update-golden"):
        write_fixtures(
            [
                replace(fixture, after=None if fixture.after is None else text or "")
                for fixture, text in zip(fixtures, found, strict=True)
            ]
        )
    for fixture, text in zip(read_fixtures(name), found, strict=True):
        assert text == fixture.after, fixture.title


@pytest.mark.parametrize("fixture", _FIXTURES, ids=lambda item: f"{item.name}: {item.title}")
def test_results_stay_the_same(fixture: Fixture) -> None:
    before, after = parse_graph(fixture.before), parse_graph(fixture.before)
    assert verify(before) == []
    fixture.make()(after, check=True)
    if fixture.after is None or not fixture.is_compared:
        return
    later = HostRun()
    later.run(after, 1)
    earlier = HostRun()
    earlier.run(before, max([1, *later.loads.values()]) if _loads(before) else 1)
    assert set(earlier.results) == set(later.results)
    for name, arrays in later.results.items():
        _assert_close(arrays, earlier.results[name][-len(arrays) :])


def _loads(graph: Graph) -> bool:
    return any(op.op_type == "HostLoad" for op in graph.ops)


def _assert_close(actual: list[Array], expected: list[Array]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        # A formula in half rounds after every step.
        rtol = 2e-3 if ours.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("fixture", _FIXTURES, ids=lambda item: f"{item.name}: {item.title}")
def test_what_is_printed_can_be_read(fixture: Fixture) -> None:
    """Before and after: printed, read and printed again, a graph has the same text."""
    before, after = parse_graph(fixture.before), parse_graph(fixture.before)
    fixture.make()(after)
    for graph in (before, after):
        text = format_graph(graph)
        assert format_graph(parse_graph(format_constants(graph) + text)) == text
