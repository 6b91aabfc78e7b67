"""An estimator trains, goes on where it ended, evaluates, predicts and exports."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.trained.estimator import Estimator
from popc_runtime import Executable
from popc_runtime.errors import UsageError
from popc_runtime.format import Array
from popc_runtime.groups import Group, run_loopback

_RNG = np.random.default_rng(4)
_DATA = {
    "x": _RNG.standard_normal((40, 6), np.float32),
    "label": _RNG.integers(0, 3, 40).astype(np.int32),
}


def _model() -> Any:
    """Scores [4, 3] of x [4, 6], and their largest."""
    weights = {"w": _RNG.standard_normal((6, 3), np.float32), "b": np.zeros(3, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["scores"]),
        helper.make_node("ReduceMax", ["scores"], ["largest"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [4, 3]),
            helper.make_tensor_value_info("largest", TensorProto.FLOAT, []),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


_MODEL = _model()


def _estimator(folder: Path, **more: Any) -> Estimator:
    return popc.Estimator(
        _MODEL,
        folder,
        loss={"type": "cross_entropy", "input": "scores", "label": "label"},
        optimizer={"type": "sgd", "learning_rate": 0.1, "momentum": 0.9},
        **more,
    )


def test_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """25 steps of 4 samples are two epochs and a half, whether they are made at once or not."""
    whole = _estimator(tmp_path / "whole")
    whole.train(_DATA, steps=25)
    parts = _estimator(tmp_path / "parts")
    parts.train(_DATA, steps=10)
    assert parts.train(_DATA, max_steps=10) is None
    parts.train(_DATA, max_steps=17)
    again = _estimator(tmp_path / "parts")
    assert again.step == 17
    last = again.train(_DATA, max_steps=25)
    assert whole.step == again.step == 25
    for name, value in whole.executable.state.read().items():
        np.testing.assert_array_equal(again.executable.state.read()[name], value)
    seen: list[tuple[int, float]] = []
    whole.restore()
    whole.train(_DATA, steps=2, hooks=[lambda step, loss: seen.append((step, loss))])
    assert [step for step, _ in seen] == [26, 27]
    assert last is not None


def test_evaluation_prediction_and_export_agree_with_onnxruntime(tmp_path: Path) -> None:
    estimator = _estimator(tmp_path)
    estimator.train(_DATA)
    assert estimator.step == 10
    path = estimator.export(tmp_path / "trained.onnx")
    session = onnxruntime.InferenceSession(path)
    parts = _DATA["x"].reshape(10, 4, 6)
    scores = np.concatenate([session.run(["scores"], {"x": part})[0] for part in parts])
    largest = [session.run(["largest"], {"x": part})[0] for part in parts]
    found = estimator.evaluate(_DATA, accuracy=("scores", "label"))
    hits = scores.argmax(1) == _DATA["label"]
    assert found["accuracy"] == pytest.approx(hits.mean())
    assert found["largest"] == pytest.approx(np.mean(largest), rel=1e-5)
    assert found["global_step"] == 10
    few = estimator.evaluate(_DATA, steps=3, accuracy=("scores", "label"))
    assert few["accuracy"] == pytest.approx(hits[:12].mean())
    samples = [*estimator.predict({"x": _DATA["x"]}, outputs=["scores"])]
    np.testing.assert_allclose([sample["scores"] for sample in samples], scores, rtol=1e-5)
    runs = [*estimator.predict({"x": _DATA["x"]}, steps=2, single=False)]
    np.testing.assert_allclose(runs[1]["scores"], scores[4:8], rtol=1e-5)
    assert len(runs) == 2
    with pytest.raises(UsageError, match="largest"):
        next(estimator.predict({"x": _DATA["x"]}))


def test_metrics_of_the_user_come_from_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = _estimator(tmp_path)
    few = estimator.predict({"x": _DATA["x"][:12]}, outputs=["scores"])
    scores = np.stack([sample["scores"] for sample in few])
    program = estimator.executable.program("evaluation")
    made = Counter[str]()
    run = program.run

    def counted(_: Executable, batch: dict[str, Array]) -> dict[str, Array]:
        made["runs"] += 1
        return run(batch)

    monkeypatch.setattr(type(program), "run", counted)
    own = estimator.evaluate(
        _DATA,
        steps=3,
        metrics={
            "wrong": lambda outputs, data: (outputs["scores"].argmax(1) != data["label"]).sum()
        },
    )
    assert own["wrong"] == (scores.argmax(1) != _DATA["label"][:12]).sum()
    assert made["runs"] == 3
    with pytest.raises(UsageError, match="the metric 'all'"):
        estimator.evaluate(_DATA, metrics={"all": lambda outputs, _data: outputs["scores"]})


def test_checkpoints_by_number(tmp_path: Path) -> None:
    estimator = _estimator(tmp_path, save_every_steps=3, keep=2)
    estimator.train(_DATA, steps=10)
    names = sorted(path.name for path in tmp_path.glob("step-*"))
    assert names == ["step-000000009.safetensors", "step-000000010.safetensors"]
    then = estimator.variables()["w"]
    estimator.train(_DATA, hooks=[lambda step, _: step == 12])
    assert estimator.step == 12
    estimator.restore(10)
    np.testing.assert_array_equal(estimator.variables()["w"], then)
    with pytest.raises(UsageError, match="there is no checkpoint"):
        estimator.restore(4)


def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is looked at."""
    ticks = iter(range(1000))
    monkeypatch.setattr("popc.trained.hooks.monotonic", lambda: next(ticks))
    estimator = _estimator(tmp_path, save_every_seconds=3, keep=0)
    estimator.train(_DATA, steps=8)
    names = [int(path.stem[5:]) for path in sorted(tmp_path.glob("step-*"))]
    assert names == [3, 6, 8]


def test_some_checkpoints_stay_for_good(tmp_path: Path) -> None:
    estimator = _estimator(tmp_path, save_every_steps=2, keep=1, keep_every_hours=1e-12)
    estimator.train(_DATA, steps=6)
    assert [int(path.stem[5:]) for path in sorted(tmp_path.glob("step-*"))] == [2, 4, 6]
    later = _estimator(tmp_path, save_every_steps=2, keep=1, keep_every_hours=1)
    later.train(_DATA, steps=2)
    assert [int(path.stem[5:]) for path in sorted(tmp_path.glob("step-*"))] == [2, 4, 8]


def test_a_log_of_steps(tmp_path: Path) -> None:
    lines: list[str] = []
    clocked: Any = {"write": lines.append, "clock": partial(next, count(0))}
    log = popc.StepLog(every_steps=3, at_end=True, tensors=["scores"], **clocked)
    estimator = _estimator(tmp_path, outputs=["scores"], hooks=[log])
    estimator.train(_DATA, steps=5)
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 4", "step 5"]
    assert "1.0 steps/s, scores = [[" in lines[0]
    assert "3.0 steps/s" in lines[1]
    lines.clear()
    clocked["clock"] = partial(next, count(0))
    told: list[int] = []
    estimator.train(
        _DATA,
        steps=8,
        hooks=[
            popc.StepLog(every_seconds=3, formatter=lambda values: f"{values['step']}", **clocked),
            lambda step, _: told.append(step),
        ],
    )
    assert len(told) == 8
    assert [line for line in lines if "step" not in line] == ["8", "11"]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({}, "when to write"),
        ({"every_steps": 1, "every_seconds": 1}, "exclude each other"),
        ({"every_seconds": 0}, "must be positive"),
        ({"at_end": True, "tensors": ["other"]}, "returns no 'other'"),
    ],
)
def test_mistakes_about_logs(tmp_path: Path, keywords: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        _estimator(tmp_path, hooks=[popc.StepLog(**keywords)]).train(_DATA, steps=1)


def test_processes_train_together(tmp_path: Path) -> None:
    """Two of them do what one with two replicas does; the first one writes."""

    def trained(group: Group | None, folder: str) -> tuple[dict[str, Array], dict[str, float]]:
        estimator = _estimator(
            tmp_path / folder,
            group=group,
            save_every_seconds=1000,
            options={"replicated_graph_count": 2},
        )
        for _ in range(2):  # the second one goes on from the checkpoint of the first
            estimator.train(_DATA, steps=3)
        return estimator.variables(), estimator.evaluate(_DATA, accuracy=("scores", "label"))

    alone, figures = trained(None, "one")
    for variables, metrics in run_loopback(2, lambda group: trained(group, "two")):
        assert metrics == pytest.approx(figures)
        for name, value in variables.items():
            np.testing.assert_array_equal(value, alone[name])


def test_fit_and_warm_start(tmp_path: Path) -> None:
    first = _estimator(tmp_path / "first")
    records = first.fit(_DATA, epochs=2, validation=_DATA, accuracy=("scores", "label"))
    assert [record.epoch for record in records] == [1, 2]
    assert set(records[0].metrics) == {"accuracy", "largest"}
    path = first.export(tmp_path / "first.onnx")
    second = _estimator(tmp_path / "second", warm_start=path)
    np.testing.assert_array_equal(second.variables()["w"], first.variables()["w"])
    assert second.step == 0


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"keep": -1, "save_every_steps": 0}, "keep is -1"),
        ({"loss": None, "optimizer": None}, "needs to know the loss"),
    ],
)
def test_mistakes(tmp_path: Path, keywords: dict[str, Any], says: str) -> None:
    training = {"loss": {"type": "l1", "input": "scores"}, "optimizer": {"type": "sgd"}}
    with pytest.raises(UsageError, match=says):
        popc.Estimator(_MODEL, tmp_path, **{**training, **keywords})


def test_steps_exclude_each_other(tmp_path: Path) -> None:
    estimator = _estimator(tmp_path, evaluate=False)
    with pytest.raises(UsageError, match="exclude"):
        estimator.train(_DATA, steps=1, max_steps=2)
    with pytest.raises(UsageError, match="it only trains"):
        estimator.evaluate(_DATA)
