"""What users get wrong about training: one clear error each, all mistakes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import popc
from popc_runtime.errors import ModelError, OptionError, PopcError, UsageError
from tests.training.small import linear_model, trainable

_LOSS = {"type": "identity", "input": "loss"}
_SGD = {"type": "sgd", "learning_rate": 0.1}


def _compile(train: dict[str, Any], **options: Any) -> PopcError:
    with pytest.raises(PopcError) as raised:
        popc.compile(linear_model(), dims={"batch": 2}, train=train, options=options)
    return raised.value


def _with_loss(**loss: Any) -> dict[str, Any]:
    return {"loss": loss, "optimizer": _SGD}


@pytest.mark.parametrize(
    ("train", "kind", "text"),
    [
        (_with_loss(type="identity", input="y", reduction="none"), ModelError, "single number"),
        (_with_loss(type="identity", input="target", reduction="mean"), ModelError, "no weight"),
        (_with_loss(type="identity", input="los"), UsageError, "no tensor 'los'"),
        (_with_loss(type="identify", input="loss"), OptionError, "identify"),
        (_with_loss(type="nll", input="y", label="x"), ModelError, "'x' is float32"),
        ({"loss": _LOSS}, OptionError, "'optimizer' is missing"),
        ({"optimizer": _SGD}, OptionError, "'loss' is missing"),
        ({**trainable(), "optimiser": {}}, OptionError, "did you mean optimizer?"),
        ({**trainable(), "weights": {"frozen": ["w", "b"]}}, ModelError, "no weight influences"),
        ({**trainable(), "weights": {"frozen": ["bb"]}}, OptionError, "'bb'"),
        ({**trainable(), "weights": {"trainable": ["w", "x"]}}, OptionError, "no weight 'x'"),
        ({**trainable(), "weights": {"frozen": 3}}, OptionError, "list of names"),
        (trainable(specific=[{"tensors": ["ww"]}]), OptionError, "'ww'"),
    ],
)
def test_mistakes(train: dict[str, Any], kind: type[PopcError], text: str) -> None:
    error = _compile(train)
    assert type(error) is kind
    assert text in str(error)


def test_all_mistakes_are_reported_at_once() -> None:
    error = _compile(
        {
            "loss": {"type": "mse", "input": "y", "labels": "target"},
            "optimizer": {"type": "sgd", "learning_rat": 0.1, "momentum": -1},
            "weight": {},
        }
    )
    assert isinstance(error, OptionError)
    text = "\n".join(error.details)
    for part in ("labels", "learning_rat", "momentum", "no table 'weight'"):
        assert part in text


@pytest.mark.parametrize("name", ["Gradient___nothing", "Accl1___w", "UpdatedVar___v"])
def test_anchors_that_training_does_not_make(name: str) -> None:
    error = _compile(trainable(), anchors={name: "all"})
    assert isinstance(error, UsageError)
    assert name.removeprefix("Gradient___") in str(error)


def test_a_gradient_may_be_asked_for_without_weights() -> None:
    train = {**trainable(), "weights": {"frozen": ["w", "b"]}}
    options = {"anchors": {"Gradient___x": "all"}}
    archive = popc.compile(linear_model(), dims={"batch": 2}, train=train, options=options)
    assert [output.name for output in archive.manifest.outputs] == ["loss", "Gradient___x"]


def test_accumulation_without_training() -> None:
    with pytest.raises(OptionError, match="accumulation_factor is for training"):
        popc.compile(linear_model(), dims={"batch": 2}, options={"accumulation_factor": 2})


def test_two_ways_at_once() -> None:
    with pytest.raises(UsageError, match="already names loss and optimizer"):
        popc.compile(linear_model(), train=trainable(), loss="loss")


def test_a_training_file(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text('[loss]\ntype = "identity"\ninput = "loss"\n[optimizer]\ntype = "sgd"\n')
    archive = popc.compile(linear_model(), dims={"batch": 2}, train=path)
    assert archive.manifest.training is not None
    assert archive.manifest.training.optimizer == "sgd"
    path.write_text("[loss\n")
    with pytest.raises(OptionError, match="cannot be parsed"):
        popc.compile(linear_model(), dims={"batch": 2}, train=path)
