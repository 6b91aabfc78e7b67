"""Workers share the elements of a field in a row, as poplin's partitionConvPartialByWorker says."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from popc.cost.formulas.workers import share_rows


def _dealt(rows: int, width: int) -> list[list[int]]:
    """The elements of each row that each of six workers has, dealt one by one."""
    elements = [row for row in range(rows) for _ in range(width)]
    count = len(elements)
    return [
        [len(list(run)) for _, run in groupby(elements[i * count // 6 : (i + 1) * count // 6])]
        for i in range(6)
    ]


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 30])
def test_parts_of_rows_are_those_of_dealing_one_by_one(rows: int, width: int) -> None:
    cycles = [sum(10 + n * n for n in parts) for parts in _dealt(rows, width)]
    most, least = share_rows(rows, width, lambda n: 10 + n * n)
    assert (int(most), int(least)) == (max(cycles), min(cycles))


def test_many_at_once_are_those_one_by_one() -> None:
    rows, width = np.array([1, 4, 9]), np.array([5, 9, 2])
    most, least = share_rows(rows, width, lambda n: 3 * n + 7)
    for at, (row, columns) in enumerate(zip(rows, width, strict=True)):
        alone = share_rows(int(row), int(columns), lambda n: 3 * n + 7)
        assert (int(most[at]), int(least[at])) == (int(alone[0]), int(alone[1]))


def test_without_elements_nobody_works() -> None:
    most, least = share_rows(0, 7, lambda n: n)
    assert (int(most), int(least)) == (0, 0)
