"""popc train and popc export from the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from popc.cli.root import run
from popc.trained.evaluation import Evaluation
from popc_runtime import Executable
from tests.support.models import affine
from tests.training.small import data, linear_model

_TRAINING = """
[loss]
type = "identity"
input = "loss"

[optimizer]
type = "adam"
learning_rate = { value = 0.05, const = false }
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, its training, and data in the current folder."""
    monkeypatch.chdir(tmp_path)
    onnx.save(linear_model(), "model.onnx")
    Path("train.toml").write_text(_TRAINING)
    samples = data(24)
    labels = samples["target"].argmax(axis=1)
    np.savez("data.npz", x=samples["x"], target=samples["target"], label=labels)


def _popc(*arguments: str) -> int:
    return run(list(arguments))


def _compiled() -> None:
    assert _popc("-q", "compile", "model.onnx", "--dim", "batch=2", "--train", "train.toml",
                 "-o", "train.popx") == 0  # fmt: skip
    assert _popc("-q", "compile", "model.onnx", "--dim", "batch=1", "--set",
                 "constant_weights=false", "-o", "eval.popx") == 0  # fmt: skip


def test_train_evaluate_log_export(capsys: pytest.CaptureFixture[str]) -> None:
    _compiled()
    arguments = (
        "--format json -q train train.popx -d data.npz -e 3 -c checkpoints --eval eval.popx "
        "--accuracy y=label --log log.csv --plot loss.png --export trained.onnx"
    )
    capsys.readouterr()
    assert _popc(*arguments.split()) == 0
    document = json.loads(capsys.readouterr().out)
    history = document["history"]
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert {"loss", "accuracy", "seconds"} <= history[0].keys()
    assert sorted(path.name for path in Path("checkpoints").iterdir()) == [
        "best.safetensors",
        "latest.safetensors",
    ]
    assert len(Path("log.csv").read_text().splitlines()) == 4
    assert Path("loss.png").read_bytes().startswith(b"\x89PNG")
    onnx.checker.check_model("trained.onnx")
    assert _popc("-q", "export", "train.popx", "-o", "again.onnx", "--checkpoint",
                 "checkpoints/latest.safetensors") == 0  # fmt: skip
    assert Path("again.onnx").read_bytes() == Path("trained.onnx").read_bytes()


def test_resumption_gives_what_one_run_gives() -> None:
    _compiled()
    train = ["-q", "train", "train.popx", "-d", "data.npz", "--seed", "3"]
    assert _popc(*train, "-e", "4", "--export", "whole.onnx") == 0
    assert _popc(*train, "-e", "2", "-c", "checkpoints") == 0
    assert _popc(*train, "-e", "4", "-c", "checkpoints", "--resume", "--export", "parts.onnx") == 0
    assert Path("parts.onnx").read_bytes() == Path("whole.onnx").read_bytes()


def test_early_stops(capsys: pytest.CaptureFixture[str]) -> None:
    _compiled()
    train = ["--format", "json", "-q", "train", "train.popx", "-d", "data.npz", "-e", "50"]
    for arguments, least in ((["--target", "loss=1.0"], 1), (["--patience", "1",
                              "--learning-rate", "0@2"], 2)):  # fmt: skip
        capsys.readouterr()
        assert _popc(*train, *arguments) == 0
        assert least <= len(json.loads(capsys.readouterr().out)["history"]) < 50


def _interrupt(monkeypatch: pytest.MonkeyPatch, at_step: int, times: int = 1) -> None:
    """Ctrl-C while a step changes what the device holds."""
    run_connected, steps = Executable.run_connected, 0

    def interrupted(self: Executable, *streams: Any, **how: Any) -> None:
        nonlocal steps
        steps += self.manifest.training is not None
        run_connected(self, *streams, **how)
        if steps == at_step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Executable, "run_connected", interrupted)
    monkeypatch.setattr(Executable, "_direct", None)  # which runs in one call to the library


@pytest.mark.parametrize("at_step", [5, 12, 17])  # 12 steps make an epoch
def test_an_interrupted_training_keeps_what_it_learnt(
    at_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compiled()
    train = ["-q", "train", "train.popx", "-d", "data.npz", "-e", "3"]
    resumable = [*train, "-c", "checkpoints", "--eval", "eval.popx", "--accuracy", "y=label"]
    with monkeypatch.context() as patched:
        _interrupt(patched, at_step)
        assert _popc(*resumable) == 130
    assert _popc(*resumable, "--resume", "--export", "parts.onnx") == 0
    assert _popc(*train, "--export", "whole.onnx") == 0
    assert Path("parts.onnx").read_bytes() == Path("whole.onnx").read_bytes()


def test_a_second_interruption_leaves_the_last_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _compiled()
    train = ["train", "train.popx", "-d", "data.npz", "-e", "3", "-c", "checkpoints"]
    with monkeypatch.context() as patched:
        _interrupt(patched, 17, times=2)
        assert _popc(*train) == 130
    assert "the last checkpoint stays" in capsys.readouterr().err
    assert _popc("-q", *train, "--resume", "--export", "parts.onnx") == 0
    assert _popc("-q", *train[:6], "--export", "whole.onnx") == 0
    assert Path("parts.onnx").read_bytes() == Path("whole.onnx").read_bytes()


def test_the_best_checkpoint_and_patience_survive_a_resumption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _compiled()
    scores = iter([0.5, 0.9, 0.6, 0.7])
    monkeypatch.setattr(Evaluation, "__call__", lambda *_: {"accuracy": next(scores)})
    train = ["train", "train.popx", "-d", "data.npz", "-c", "checkpoints", "--eval", "eval.popx"]
    assert _popc("-q", *train, "-e", "2") == 0
    best = Path("checkpoints/best.safetensors").read_bytes()
    capsys.readouterr()
    for _ in range(2):  # the second has nothing left to do
        assert _popc(*train, "-e", "9", "--resume", "--patience", "2") == 0
        assert "no improvement for 2 epochs" in capsys.readouterr().err
    assert Path("checkpoints/best.safetensors").read_bytes() == best


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("train train.popx -d data.npz --resume", 2, "--resume needs --checkpoint"),
        ("train train.popx -d data.npz --accuracy y=label", 2, "--accuracy needs --eval"),
        ("train train.popx -d data.npz -c new --resume", 2, "there is no checkpoint"),
        ("train train.popx -d data.npz --learning-rate x", 2, "RATE or RATE@EPOCH"),
        ("train train.popx -d data.npz --target loss", 2, "expected NAME=VALUE"),
        ("train train.popx -d data.npz --target los=1", 2, "no such metric"),
        ("train train.popx -d data.npz --learning-rate 1e30", 6, "the loss became"),
        ("train eval.popx -d data.npz", 2, "does not train"),
        ("train train.popx -d train.toml", 7, "not a .npy or .npz file"),
        ("train train.popx -d data.npz --log missing/log.csv", 7, "cannot write"),
        ("train train.popx -d data.npz --export missing/new.onnx", 7, "cannot write missing"),
        ("train train.popx -d data.npz -c train.toml/x", 7, "cannot create the folder"),
        ("train train.popx -d data.npz --log a --plot a", 2, "must be different files"),
        ("train train.popx -d data.npz --seed -1", 2, "-1 is not in the range"),
        ("train train.popx -d data.npz --learning-rate=-1", 2, "must not be negative"),
        ("train train.popx -d data.npz --learning-rate 1@0", 2, "epochs count from 1"),
        ("train train.popx -d objects.npz", 7, "something other than numbers"),
        ("export eval.popx -o model.onnx", 7, "exists already"),
        ("export train.popx -o new.onnx --checkpoint data.npz", 5, "cannot read checkpoint"),
        ("compile model.onnx --stop-after train", 2, "needs --train"),
    ],
)
def test_mistakes(
    arguments: str,
    code: int,
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _compiled()
    np.savez("objects.npz", x=np.array([{}], object))
    capsys.readouterr()
    with monkeypatch.context() as patched:  # before anything has been trained
        if code != 6:
            patched.delattr("popc_runtime.trainer.Trainer._step")
        assert _popc("-q", *arguments.split()) == code
    assert text in capsys.readouterr().err


def test_missing_weights_are_not_to_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    _compiled()
    onnx.save(affine(), "other.onnx")
    capsys.readouterr()
    assert _popc("train", "train.popx", "-d", "data.npz", "--weights", "other.onnx") == 6
    err = capsys.readouterr().err
    assert "other.onnx lacks the weight" in err
    assert "hint: give the model that was compiled" in err
    assert "ignore_unknown" not in err


_LABELLED = """
[loss]
type = "nll"
input = "y"
label = "label"
[optimizer]
type = "sgd"
"""


def test_bench_draws_labels_that_there_are() -> None:
    onnx.save(affine(4, 3), "affine.onnx")
    Path("labelled.toml").write_text(_LABELLED)
    command = ("compile", "affine.onnx", "--train", "labelled.toml", "-o", "labelled.popx")
    assert _popc("-q", *command) == 0
    assert _popc("bench", "labelled.popx", "--runs", "1") == 0
    np.save("label.npy", np.zeros(4, np.int32))
    assert _popc("bench", "labelled.popx", "--runs", "1", "-i", "label=label.npy") == 0
