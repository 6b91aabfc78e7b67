"""What options are for: the estimates move as the table of `benchmarks.options` says."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.option_rows import ROWS, Row
from benchmarks.options import find_astray, measure_row

_CACHE: dict[str, Any] = {}  # programs without an option


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.slow] if row.graphs else [])
        for row in ROWS
        if row.moves
    ],
)
def test_options_move_estimates_as_they_are_said_to(row: Row) -> None:
    figures = measure_row(row, row.graphs[0] if row.graphs else "mlp", _CACHE)
    assert figures["astray"] == []
    assert not figures["wrong"]


def test_what_does_not_move_is_astray() -> None:
    row = Row("any", {}, moves={"cycles": -1, "ops": 1})
    assert find_astray(row, {"cycles": (2, 2), "ops": (1, 2)}) == ["cycles"]
    assert find_astray(row, {"cycles": (2, 1), "ops": (2, 1)}) == ["ops"]
