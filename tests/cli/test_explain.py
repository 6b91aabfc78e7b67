"""popc explain, and what popc compile says of a program that does not fit."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from popc.cli.root import run
from popc.study.advice import explain as advice_on_request
from tests.support.small_targets import small_target, tower


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, however slow the machine: what several of them do has tests of its own."""
    monkeypatch.setattr(advice_on_request, "available_cores", lambda: 1)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tower.onnx"
    path.write_bytes(tower())
    return str(path)


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_compile_refuses_with_advice(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, archive = small_target(tmp_path, kilobytes=22), tmp_path / "tower.popx"
    arguments = ["compile", model, "--dim", "batch=256", "--set", f"target={target}"]
    arguments += ["--set", "available_memory_proportion=0.9", "-o", str(archive)]
    assert run(["-q", *arguments]) == 4
    said = capsys.readouterr().err
    for part in ("does not fit small22", "tiles are over", "temporary", "What makes it fit", "w0"):
        assert part in said
    assert not archive.exists()
    line = next(line for line in said.split("\n") if "popc compile" in line)
    words = shlex.split(line)[1:]
    assert run(["-q", *words, "-o", str(archive)]) == 0
    document = _json([*arguments, "--force"], capsys, code=4)
    assert document["error"]["code"] == "does-not-fit"
    assert document["report"]["fixes"]


def test_allowed_all_the_same(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, archive = small_target(tmp_path, kilobytes=16), str(tmp_path / "tower.popx")
    arguments = ["compile", model, "--dim", "batch=256", "--set", f"target={target}"]
    assert run([*arguments, "--allow-out-of-memory", "-o", archive]) == 0
    assert "warning: the program does not fit small16" in capsys.readouterr().err
    document = _json(["explain", archive], capsys, code=4)
    assert not document["fits"]
    assert document["ipus"][0]["tiles_over"] == 16
    assert run(["-q", "explain", archive]) == 4
    assert "tiles are over" in capsys.readouterr().out
    assert run(["-q", "run", archive, "--synthetic"]) in (0, 2)


def test_explain_a_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", model, "--dim", "batch=64"]
    document = _json(arguments, capsys)
    assert document["schema"] == "popc.explain/1"
    assert document["fits"]
    assert document["slowest_ops"]
    assert run(["-q", *arguments, "--budget", "20"]) == 0
    out = capsys.readouterr().out
    for part in ("The program fits ipu2", "The slowest ops", "What is there"):
        assert part in out
    small = small_target(tmp_path, kilobytes=14)
    assert run(["-q", *arguments, "--target", small, "--budget", "0"]) == 4
    assert "What makes it fit" not in capsys.readouterr().out


def test_training(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = tmp_path / "train.toml"
    text = '[loss]\ntype = "l1"\ninput = "y"\n[optimizer]\ntype = "sgd"\n'
    train.write_text(text, encoding="utf-8")
    target = small_target(tmp_path, kilobytes=28)
    arguments = ["explain", model, "--dim", "batch=128", "--train", str(train), "--target", target]
    document = _json([*arguments, "--budget", "12"], capsys, code=4)
    names = {
        name for fix in [*document["fixes"], *document["insufficient"]] for name in fix["names"]
    }
    assert "recomputation" in names
    assert "micro-batches" in names


def test_several_chips_are_named(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = small_target(tmp_path, kilobytes=14)
    chips = ["--set", "num_ipus=2", "--set", "virtual_graph_mode=auto"]
    arguments = ["explain", model, "--dim", "batch=256", "--target", target, *chips]
    assert run(["-q", *arguments, "--budget", "30"]) == 4
    out = capsys.readouterr().out
    assert "IPU 0, tile" in out
    document = _json([*arguments, "--budget", "0"], capsys, code=4)
    assert {chip["ipu"] for chip in document["ipus"]} == {0, 1}


def test_mistakes(model: str, tmp_path: Path) -> None:
    archive = str(tmp_path / "a.popx")
    assert run(["-q", "compile", model, "--dim", "batch=2", "-o", archive]) == 0
    assert run(["-q", "explain", archive]) == 2  # no cost report
    assert run(["-q", "explain", archive, "--target", "bow"]) == 2
    assert run(["-q", "explain", model, "--dim", "batch=2", "--target", "gpu"]) == 2
