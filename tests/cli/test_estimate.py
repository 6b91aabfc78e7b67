"""popc targets and popc estimate."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import onnx
import pytest

from popc.cli.root import run
from tests.support.models import affine


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(affine("N", 64), path)
    return str(path)


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets"]) == 0
    out = capsys.readouterr().out
    assert "ipu1" in out
    assert "348.6 TFLOP/s" in out
    document = _json(["targets"], capsys)
    assert document["schema"] == "popc.targets/1"
    assert [row["name"] for row in document["targets"]] == ["ipu1", "ipu2", "ipu21", "bow"]


def test_a_target_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "c600"]) == 0
    assert "565" in capsys.readouterr().out
    assert run(["targets", "gpu"]) == 2


def test_a_target_can_be_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "--show", "mk2"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["name"] == "ipu2"
    (tmp_path / "mine.toml").write_text(text.replace('"ipu2"', '"mine"'), encoding="utf-8")
    assert _json(["targets", str(tmp_path / "mine.toml")], capsys)["targets"][0]["name"] == "mine"


def test_costs_as_text(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "estimate", model, "--dim", "N=8"]) == 0
    out = capsys.readouterr().out
    for part in ("Total cycles", "sync", "vertex code", "Always live", "HostLoad"):
        assert part in out


def test_costs_as_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = _json(["estimate", model, "--dim", "N=8", "--target", "bow"], capsys)
    assert document["schema"] == "popc.estimate/1"
    assert document["target"]["name"] == "bow"
    assert document["fits"]
    assert document["cycles"]["total"] > 0
    assert "ops" not in document
    full = _json(["estimate", model, "--dim", "N=8", "--all"], capsys)
    assert len(full["memory"][0]["peak"]) == 1472
    assert {op["op_type"] for op in full["ops"]} >= {"HostLoad", "HostStore"}


def test_what_does_not_fit(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["estimate", model, "--dim", "N=100000", "--set", "tiles_per_ipu=2"]
    assert run(["-q", *arguments]) == 4
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_mistakes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "estimate", model, "--dim", "N=8", "--target", "gpu"]) == 2
    assert "there is no target 'gpu'" in capsys.readouterr().err
    arguments = ["estimate", model, "--dim", "N=8", "--set", "available_memory_proportion=7"]
    assert run(["-q", *arguments]) == 2
    assert "must be from 0 to 1" in capsys.readouterr().err
    assert run(["-q", "estimate", model, "--dim", "N=8", "--set", "num_ipus=3"]) == 2
    assert "power of two" in capsys.readouterr().err
