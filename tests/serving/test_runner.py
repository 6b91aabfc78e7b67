"""Requests share runs, and each gets its own results, or its own error."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import (
    DeviceError,
    NotServedError,
    OverloadedError,
    RunTimeoutError,
)
from popc_runtime.format import Array, DType, TensorSpec
from popc_runtime.serving.models import Batching
from popc_runtime.serving.runner import Runner


class _Doubles:
    """A model that doubles numbers, holds its first run until it is let go, and refuses 13."""

    platform = "test"
    inputs: tuple[TensorSpec, ...] = (
        TensorSpec("x", DType.INT64, (-1,)),
        TensorSpec("scale", DType.INT64, (1,)),
    )
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", DType.INT64, (-1,)),)
    optional: tuple[str, ...] = ("scale",)
    batching: Batching | None = Batching({"x": 0}, {"y": 0}, 8)

    def __init__(self) -> None:
        self.go = threading.Event()
        self.runs: list[list[int]] = []
        self.begun = threading.Event()
        self.closed = False

    def prepared(self, arrays: dict[str, Array]) -> Mapping[str, Array]:
        return arrays

    def run(self, arrays: Mapping[str, Array], timeout: float | None) -> dict[str, Array]:
        del timeout
        self.begun.set()
        assert self.go.wait(60)
        self.runs.append(arrays["x"].tolist())
        if 13 in arrays["x"]:
            raise DeviceError("13 is not to be doubled")
        return {"y": 2 * arrays["x"] * arrays.get("scale", np.ones(1, np.int64))}

    def close(self) -> None:
        self.closed = True


def _given(*numbers: int, **others: int) -> dict[str, Any]:
    return {"x": np.array(numbers), **{name: np.array([each]) for name, each in others.items()}}


@pytest.fixture
def held() -> tuple[_Doubles, Runner]:
    """A model whose thread is held in a run."""
    model = _Doubles()
    runner = Runner(model, name="doubles:1", max_queue=4)
    runner.submit(_given(0))
    assert model.begun.wait(60)
    return model, runner


def test_requests_share_a_run(held: tuple[_Doubles, Runner]) -> None:
    model, runner = held
    given = [(1, 2), (3,), (13,), (4, 5, 6)]
    futures = [runner.submit(_given(*numbers)).value[1] for numbers in given]
    model.go.set()
    runner.close()
    assert model.runs[1] == [1, 2, 3, 13, 4, 5, 6]
    for numbers, future in zip(given, futures, strict=True):
        if 13 in numbers:
            with pytest.raises(DeviceError, match="13"):
                future.result()
            continue
        assert future.result().results["y"].tolist() == [2 * each for each in numbers]
    assert model.closed


def test_what_a_batch_has_in_common_must_be_equal(held: tuple[_Doubles, Runner]) -> None:
    model, runner = held
    futures = [runner.submit(_given(n, scale=s)).value[1] for n, s in ((1, 5), (2, 7), (3, 5))]
    model.go.set()
    runner.close()
    assert model.runs[1:] == [[1, 3], [2]]
    assert [future.result().results["y"].item() for future in futures] == [10, 28, 30]


def test_a_full_queue_refuses(held: tuple[_Doubles, Runner]) -> None:
    model, runner = held
    waiting = [runner.submit(_given(n)) for n in range(4)]
    with pytest.raises(OverloadedError, match="the queue of model doubles:1 is full, 4 wait"):
        runner.submit(_given(9))
    runner.forget(waiting[0])
    runner.submit(_given(7))
    model.go.set()
    runner.close()
    assert model.runs[1] == [1, 2, 3, 7]
    assert waiting[0].value[1].cancelled()


def test_who_waits_too_long_is_told(held: tuple[_Doubles, Runner]) -> None:
    model, runner = held
    late = runner.submit(_given(1), deadline=0.0).value[1]
    model.go.set()
    runner.close()
    with pytest.raises(RunTimeoutError, match="for its turn"):
        late.result()
    assert model.runs == [[0]]
    with pytest.raises(NotServedError, match="has been unloaded"):
        runner.submit(_given(1))


def test_samples_of_other_shapes_run_apart() -> None:
    batching = Batching({"x": 1}, {"y": 0}, 8)
    key, size = batching.group({"x": np.zeros((2, 3))})
    assert size == 3
    assert batching.group({"x": np.zeros((2, 5))}) == (key, 5)
    assert batching.group({"x": np.zeros((3, 3))})[0] != key
    assert batching.group({"x": np.zeros((2, 3), "f4")})[0] != key
    for shape in ((2,), (2, 0)):
        assert batching.group({"x": np.zeros(shape)}) == (None, 1)
