"""`popc compile --explain-options`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from popc.cli.root import run
from tests.training.many_weights import many_weights


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    onnx.save(many_weights(), folder / "m.onnx")
    text = '[loss]\ntype = "identity"\ninput = "loss"\n[optimizer]\ntype = "sgd"\n'
    (folder / "train.toml").write_text(text)
    return folder


def _run(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *items: str,
    train: bool = True,
    before: tuple[str, ...] = (),
) -> str:
    settings = [part for item in items for part in ("--set", item)]
    how = ["--train", str(folder / "train.toml")] if train else []
    command = ["compile", str(folder / "m.onnx"), "--dim", "batch=3", "--explain-options"]
    capsys.readouterr()
    assert run([*before, *command, *how, *settings]) == 0
    return capsys.readouterr().out


def _explained(
    folder: Path, capsys: pytest.CaptureFixture[str], *items: str, train: bool = True
) -> dict[str, dict[str, Any]]:
    text = _run(folder, capsys, *items, train=train, before=("--format", "json"))
    return {row["option"]: row for row in json.loads(text)["options"]}


def test_effects_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _explained(folder, capsys, "merge_var_update=all", "accumulation_factor=2")
    merged = rows["merge_var_update"]
    assert merged["has_effect"]
    assert merged["from"] == "cli"
    assert merged["removed"]["SGD0VarUpdate"] > 5
    assert merged["added"]["Concat"] == 4
    instructions = merged["changes"]["instructions"]
    assert instructions["after"] < instructions["before"]
    assert rows["accumulation_factor"]["added"]["Loop"] == 1
    assert not (folder / "m.popx").exists()


def test_options_without_effect_are_flagged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = ("verify_ir=true", "loose_threshold_at_peak=5", "batches_per_step=1")
    rows = _explained(folder, capsys, *items)
    assert not any(row["has_effect"] for row in rows.values())
    assert rows["batches_per_step"]["reason"] == "this is the default"
    assert "the same" in rows["loose_threshold_at_peak"]["reason"]
    assert "loose_threshold_at_peak = 5 has no effect" in _run(folder, capsys, *items)


def test_archives_are_compared_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = _explained(folder, capsys, "weights=mmap", train=False)["weights"]
    assert list(row["changes"]) == ["archive bytes"]


def test_what_is_needed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _explained(folder, capsys, "checkpoints=tanh1", "auto_recomputation=standard")
    assert "nothing is" in rows["auto_recomputation"]["reason"]


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _run(folder, capsys, "merge_var_update=all")
    header, first, *_ = text.splitlines()
    assert header.split() == ["option", "what", "without", "with", "change"]
    assert first.split()[:4] == ["merge_var_update", "=", "all", "ops"]
    assert "removes" in text
    assert "no option was set" in _run(folder, capsys)
