"""TensorFlow's RunConfig and IPURunConfig: the examples of their documentation, and estimators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from popc.hosts.tensorflow import IPUConfig, IPURunConfig, RunConfig
from popc_runtime.errors import UsageError
from popc_runtime.groups import Group, run_loopback

_CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
_TRAIN: dict[str, Any] = {
    "loss": {"type": "identity", "input": "loss"},
    "optimizer": {"type": "sgd", "learning_rate": 0.1},
}


def _said(monkeypatch: pytest.MonkeyPatch, **told: Any) -> RunConfig:
    monkeypatch.setenv("TF_CONFIG", json.dumps(told))
    return RunConfig()


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"type": "worker", "index": 1}, ("host4:2222", 1, 2, 4, False, 2)),
        ({"type": "chief", "index": 0}, ("host0:2222", 0, 2, 4, True, 0)),
        ({"type": "evaluator", "index": 0}, ("", 0, 0, 0, False, 0)),
    ],
)
def test_the_examples_of_the_documentation(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    config = _said(monkeypatch, cluster=_CLUSTER, task=task)
    assert (
        config.master,
        config.task_id,
        config.num_ps_replicas,
        config.num_worker_replicas,
        config.is_chief,
        config.rank,
    ) == expected
    assert config.cluster_spec == ({} if task["type"] == "evaluator" else _CLUSTER)
    assert config.task_type == task["type"]


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig()
    assert (config.task_type, config.task_id, config.master) == ("worker", 0, "")
    assert (config.num_worker_replicas, config.is_chief, config.cluster_spec) == (1, True, {})
    assert config.save_checkpoints_secs == 600


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"cluster": _CLUSTER}, "task type and index must be set"),
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}, "only one"),
        ({"cluster": _CLUSTER, "task": {"type": "worker", "index": 3}}, "3 is not a valid task_id"),
    ],
)
def test_a_cluster_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        _said(monkeypatch, **told)


def test_settings_of_a_run_as_options() -> None:
    own = IPUConfig()
    own.auto_select_ipus = 4
    own.optimizations.combine_matmuls = True
    run = IPURunConfig(
        10, own, compile_summary=True, num_replicas=2, num_shards=2, prefetch_depth=3
    )
    assert run.options(processes=3) == {
        "dialect": "tensorflow",
        "optimizations.combine_matmuls": True,
        "batches_per_step": 10,
        "num_ipus": 2,
        "virtual_graph_mode": "auto",
        "replicated_graph_count": 6,
        "default_buffering_depth": 3,
        "cost_report": True,
    }
    with pytest.raises(UsageError, match="2 replicas of 1 shards need 2"):
        IPURunConfig(ipu_options=own, num_replicas=2).options()
    with pytest.raises(UsageError, match="a device of its own"):
        IPURunConfig(ordinal=1).options()


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"session_config": object(), "save_summary_steps": 5}, UsageError, "only TensorFlow has"),
        ({"sesion_config": None}, TypeError, "sesion_config"),
        ({"save_checkpoints_steps": 1, "save_checkpoints_secs": 1}, ValueError, "both"),
    ],
)
def test_settings_that_are_refused(
    keywords: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        RunConfig(**keywords)


def _model() -> onnx.ModelProto:
    text = """<ir_version: 9, opset_import: ["": 18]>
    agraph (float[2, 3] x) => (float loss) <float[3, 1] w = {1, 2, 3}> {
        y = MatMul (x, w) z = Mul (y, y) loss = ReduceMean <keepdims = 0> (z)
    }"""
    return parser.parse_model(text)


def test_an_estimator_logs_and_keeps_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig(
        IPURunConfig(iterations_per_loop=2),
        model_dir=tmp_path,
        save_checkpoints_steps=2,
        keep_checkpoint_max=1,
        log_step_count_steps=2,
    )
    estimator = config.estimator(_model(), **_TRAIN)
    estimator.train({"x": np.ones((8, 3), np.float32)}, steps=4)
    assert [path.stem for path in tmp_path.glob("step-*")] == ["step-000000004"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 3"]
    with pytest.raises(UsageError, match="no model_dir"):
        RunConfig().estimator(_model(), **_TRAIN)


def test_processes_are_those_of_tf_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    )
    second = RunConfig(model_dir=tmp_path, log_step_count_steps=None)
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    )
    first = RunConfig(model_dir=tmp_path, log_step_count_steps=None)
    with pytest.raises(UsageError, match="names 2 processes"):
        first.estimator(_model(), **_TRAIN)

    def train(group: Group) -> float:
        config = (first, second)[group.rank]
        estimator = config.estimator(_model(), group=group, **_TRAIN)
        assert estimator.executable.share is not None
        estimator.train({"x": np.ones((8, 3), np.float32)}, steps=2)
        return float(estimator.variables()["w"].sum())

    one, other = run_loopback(2, train)
    assert one == other < 6

    def swapped(group: Group) -> None:
        (second, first)[group.rank].estimator(_model(), group=group, **_TRAIN)

    with pytest.raises(UsageError, match="process 1 of 2, but mpiexec that it is process 0"):
        run_loopback(2, swapped)
