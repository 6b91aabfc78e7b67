"""An estimator trains, goes on where it ended, evaluates, predicts and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
from popc.trained.estimator import Estimator
from popc_runtime.errors import UsageError

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
    own = estimator.evaluate(
        _DATA,
        steps=3,
        metrics={
            "wrong": lambda outputs, data: (outputs["scores"].argmax(1) != data["label"]).sum()
        },
    )
    assert own["wrong"] == (~hits[:12]).sum()
    with pytest.raises(UsageError, match="the metric 'all'"):
        estimator.evaluate(_DATA, metrics={"all": lambda outputs, _data: outputs["scores"]})
    samples = [*estimator.predict({"x": _DATA["x"]}, outputs=["scores"])]
    np.testing.assert_allclose([sample["scores"] for sample in samples], scores, rtol=1e-5)
    runs = [*estimator.predict({"x": _DATA["x"]}, steps=2, single=False)]
    np.testing.assert_allclose(runs[1]["scores"], scores[4:8], rtol=1e-5)
    assert len(runs) == 2
    with pytest.raises(UsageError, match="largest"):
        next(estimator.predict({"x": _DATA["x"]}))


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
    monkeypatch.setattr("popc.trained.estimator.monotonic", lambda: next(ticks))
    estimator = _estimator(tmp_path, save_every_seconds=3, keep=0)
    estimator.train(_DATA, steps=8)
    names = [int(path.stem[5:]) for path in sorted(tmp_path.glob("step-*"))]
    assert names == [3, 6, 8]


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
