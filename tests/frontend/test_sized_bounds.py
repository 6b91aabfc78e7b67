"""Bounds that users give for sizes that data decides."""

from __future__ import annotations

import numpy as np
import pytest

import popc
from popc_runtime.errors import DataDependentShapeError, DeviceError, UsageError
from tests.support.sized import compare, draw, model_of


def test_bounds_are_of_tensors_whose_size_data_decides() -> None:
    with pytest.raises(UsageError, match="'wrong'") as caught:
        popc.compile(model_of("out = Identity(r)"), options={"bounds": {"wrong": 3}})
    assert caught.value.hint == "it decides that of r"


def test_a_pattern_bounds_several_sizes() -> None:
    body = "z = Constant<value_int = 0>() o = Constant<value_int = 1>() n1 = Range(z, k, o) "
    model = model_of(f"{body} n2 = Range(o, k, o) out = Concat<axis = 0>(n1, n2)", "int64 out")
    with pytest.raises(DataDependentShapeError, match="n2"):
        popc.compile(model, options={"bounds": {"n1": 3}})
    with pytest.raises(UsageError, match="'w\\*'"):
        popc.compile(model, options={"bounds": {"n?": 3, "w*": 3}})
    compare(model, [draw(seed) for seed in range(6)], options={"bounds": {"n?": 3}})


def test_a_size_beyond_its_bound_is_an_error_that_names_both() -> None:
    model = model_of("out = Identity(places)", "int64 out")
    program = popc.compile(model, options={"bounds": {"places": 3}}).load()
    few, many = draw(0), draw(1)
    few["x"][0, 0] = -1
    many["x"][:, 0] = 1
    assert program.run(few)["out"].shape[1] <= 3
    with pytest.raises(DeviceError, match=r"'places' has a size of 4, but at most 3") as caught:
        program.run(many)
    assert "--bound places=4" in str(caught.value)


def test_a_size_that_an_op_does_not_count_is_checked_too() -> None:
    model = model_of(
        "z = Constant<value = int64 {0}>() s = Constant<value = int64 {1}>() out = Range(z, k, s)",
        "int64 out",
    )
    program = popc.compile(model, options={"bounds": {"out": 2}}).load()
    inputs = draw(0)
    assert program.run({**inputs, "k": np.int64(2)})["out"].tolist() == [0, 1]
    with pytest.raises(DeviceError, match=r"'out' has a size of 3, but at most 2"):
        program.run({**inputs, "k": np.int64(3)})
