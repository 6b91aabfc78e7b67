from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popc
from popc.options import Anchor, ReturnType
from popc.options.table import FrozenTable
from popc_runtime.errors import OptionError
from popc_runtime.format import DType
from tests.replication.models import compiled, graphcore


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
        ("SUM:Float32", Anchor(ReturnType.SUM, dtype=DType.FLOAT32)),
        ({"type": "sum", "dtype": "int64"}, Anchor(ReturnType.SUM, dtype=DType.INT64)),
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
        ("sum:float", "is a sum in 'float', but must be in one of int8, .*float64"),
        ("sum:2", "is a sum in '2'"),
        ("sum:bool", "is a sum in 'bool'"),
        ({"type": "sum", "n": 2}, "is sum, which takes no n"),
        ({"type": "sum", "dtype": 3}, "is a sum in 3"),
        ({"type": "final", "dtype": "float32"}, "is final, which takes no dtype"),
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


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("own", "wanted", "value", "expected"),
    [
        ("float16", "", 2000, 128_000),
        ("float16", ":float16", 2000, np.inf),
        ("float16", ":float32", 2000, 128_000),
        ("float16", ":float64", 2000, 128_000),
        ("int8", ":int32", -100, -6400),
        ("uint8", ":int16", 200, 12_800),
        ("int32", ":float64", 2**30, 2.0**36),
        ("bool", ":int64", 1, 64),
    ],
)
def test_sums_in_another_type(
    own: str, wanted: str, value: int, expected: float, replicas: int, tmp_path: Path
) -> None:
    model = graphcore(f"g ({own}[1] x) => ({own} y) {{ y = Identity (x) }}")
    program = compiled(
        model,
        tmp_path,
        batches_per_step=64,
        anchors={"y": f"sum{wanted}"},
        replicated_graph_count=replicas,
    )
    rows = (64, replicas, 1) if replicas > 1 else (64, 1)
    found = program.run(x=np.full(rows, value, own))["y"]
    assert found.dtype == (wanted[1:] or ("float32" if own == "float16" else own))
    np.testing.assert_array_equal(found.reshape(-1), [expected] * replicas)
    assert program.outputs[0].dtype.value == found.dtype


@pytest.mark.parametrize(
    ("own", "wanted"),
    [("float32", "float16"), ("float32", "int64"), ("float16", "bfloat16"), ("int32", "uint64")],
)
def test_sums_in_a_type_that_does_not_hold_them(own: str, wanted: str) -> None:
    text = "float" if own == "float32" else own
    model = graphcore(f"g ({text}[1] x) => ({text} y) {{ y = Identity (x) }}")
    with pytest.raises(OptionError, match=f"is sum:{wanted}, which cannot hold") as caught:
        popc.compile(model, options={"anchors": {"y": f"sum:{wanted}"}})
    assert "leave the type out" in caught.value.hint
