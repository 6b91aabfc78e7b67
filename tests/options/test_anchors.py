from __future__ import annotations

import pytest

from popc.options import Anchor, ReturnType
from popc.options.table import FrozenTable


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("all", Anchor()),
        ("FINAL", Anchor(ReturnType.FINAL)),
        ("Sum", Anchor(ReturnType.SUM)),
        ("every_n:4", Anchor(ReturnType.EVERY_N, 4)),
        ("EVERYN:4", Anchor(ReturnType.EVERY_N, 4)),
        ({"type": "sum"}, Anchor(ReturnType.SUM)),
        ({"type": "EveryN", "n": 2}, Anchor(ReturnType.EVERY_N, 2)),
    ],
)
def test_spellings(value: object, expected: Anchor) -> None:
    assert Anchor.parse(value) == expected
    assert Anchor.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("last", "is 'last', but must be one of all, final, sum, every_n"),
        ("", "is '', but must be one of"),
        (3, "must be a return type"),
        ({"n": 2}, "must be a return type"),
        ("every_n", "needs n, the return period"),
        ("every_n:", "needs n, the return period"),
        ("every_n:x", "needs n, the return period"),
        ("every_n:-2", "needs n, the return period"),
        ({"type": "every_n", "n": "2"}, "needs n, the return period"),
        ({"type": "every_n", "n": True}, "needs n, the return period"),
        ("final:2", "is final, which takes no n"),
        ({"type": "all", "n": 1}, "is all, which takes no n"),
        ({"type": "all", "period": 1}, "has the field 'period'"),
    ],
)
def test_mistakes(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Anchor.parse(value)


@pytest.mark.parametrize(
    ("anchor", "batches", "samples"),
    [("all", 6, 6), ("all", 1, 1), ("final", 6, 0), ("sum", 6, 0), ("every_n:2", 6, 3)],
)
def test_samples_per_step(anchor: str, batches: int, samples: int) -> None:
    assert Anchor.parse(anchor).samples(batches) == samples


@pytest.mark.parametrize(
    ("anchor", "batches", "problem"),
    [
        ("all", 1, ""),
        ("every_n:1", 1, ""),
        ("every_n:6", 6, ""),
        ("every_n:4", 6, "n is 4, which does not divide batches_per_step (6)"),
        ("every_n:7", 6, "n is 7, but must be from 1 to batches_per_step (6)"),
        ("every_n:0", 6, "n is 0, but must be from 1 to batches_per_step (6)"),
    ],
)
def test_the_period_divides_the_step(anchor: str, batches: int, problem: str) -> None:
    assert Anchor.parse(anchor).problem(batches) == problem


def test_frozen_tables() -> None:
    table = FrozenTable({"b": 1, "a": 2})
    assert list(table) == ["a", "b"]
    assert table == {"a": 2, "b": 1}
    assert hash(table) == hash(FrozenTable({"a": 2, "b": 1}))
    assert table.updated({"c": 3, "a": 0}) == {"a": 0, "b": 1, "c": 3}
    assert repr(table) == "{'a': 2, 'b': 1}"
    assert len(FrozenTable()) == 0
