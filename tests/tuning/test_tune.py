"""Tuning real programs: deterministic, resumable, and what is written compiles."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
from popc.cli.root import run
from popc.compiler import plan_program
from popc.frontend import load_model
from popc.options import SCHEMA, changed_options
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest
from popc.study.advice import Situation
from popc.study.tuning import (
    TUNABLES,
    Tuning,
    dimensions_of,
    identity_of,
    options_file,
    tune_request,
)
from popc_runtime.errors import UsageError
from tests.support.small_targets import small_target, tower

_TRAIN = {"loss": {"type": "l1", "input": "y"}, "optimizer": {"type": "adam"}}


def _tune(batch: int = 32, options: dict[str, Any] | None = None, **more: Any) -> Tuning:
    train = more.pop("train", None)
    request = CompileRequest.of(tower(), options=options, dims={"batch": batch}, train=train)
    return tune_request(request, **{"budget": 40, **more})


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tower.onnx"
    path.write_bytes(tower())
    return str(path)


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_all_values_are_values() -> None:
    """Every row of the table names an option, and values that it takes."""
    names = {spec.name for spec in SCHEMA}
    options = popc.make_options({"num_ipus": 2, "replicated_graph_count": 2})
    for row in TUNABLES:
        assert row.option in names
        for value in row.values if isinstance(row.values, tuple) else ():
            changed_options(options, {row.option: value})


def test_inexact_options_are_asked_for() -> None:
    request = CompileRequest.of(tower(), dims={"batch": 8}, train=_TRAIN)
    loaded = request.load()
    report = costs_of(plan_program(request, loaded))
    situation = Situation(request, loaded, report)
    inexact = {row.option for row in TUNABLES if not row.exact}
    exact = {dimension.option for dimension in dimensions_of(situation)}
    assert not exact & inexact
    assert "auto_recomputation" in exact
    more = {dimension.option for dimension in dimensions_of(situation, allow_inexact=True)}
    assert "decompose_grad_sum" in more


def test_what_is_set_stays() -> None:
    tuning = _tune(options={"available_memory_proportion": 0.3}, budget=20)
    text = options_file(tuning, {})
    assert tomllib.loads(text)["available_memory_proportion"] == 0.3
    explored = str(tuning.to_dict()["pareto_front"])
    assert "available_memory_proportion" not in explored


def test_processes_change_nothing(tmp_path: Path) -> None:
    options = {"target": small_target(tmp_path, kilobytes=48)}
    alone = _tune(256, options, budget=25)
    assert alone.to_dict() == _tune(256, options, budget=25, jobs=2).to_dict()


def test_a_smaller_program_is_found(tmp_path: Path) -> None:
    target = small_target(tmp_path, kilobytes=96)
    tuning = _tune(256, {"target": target}, objective="bytes")
    best = tuning.found.best
    assert best is not None
    assert best.outcome.peak_bytes < tuning.found.base.peak_bytes
    path = tmp_path / "chosen.toml"
    path.write_text(options_file(tuning, {}), encoding="utf-8")
    report = popc.estimate(tower(), dims={"batch": 256}, options=path)
    assert max(chip.peak_bytes for chip in report.memory) == best.outcome.peak_bytes
    archive = popc.compile(tower(), dims={"batch": 256}, options=path)
    assert abs(archive.size() - best.outcome.archive_bytes) < 200  # origins of options differ


def test_the_size_of_archives_is_exact(tmp_path: Path) -> None:
    archive = popc.compile(tower(), dims={"batch": 4})
    size = archive.save(tmp_path / "a.popx").stat().st_size
    assert archive.size() == size
    mapped = popc.compile(tower(), dims={"batch": 4}, options={"weights": "mmap"})
    assert mapped.size() == mapped.save(tmp_path / "b.popx").stat().st_size


class _Stopped(Exception):
    pass


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    whole = _tune(budget=20)

    def stop(done: int, total: int) -> None:
        del total
        if done == 7:
            raise _Stopped

    with pytest.raises(_Stopped):
        _tune(budget=20, journal=journal, on_planned=stop)
    lines = journal.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8
    with journal.open("a", encoding="utf-8") as file:
        file.write('{"change": "{\\"compr')  # a crash while writing
    resumed = _tune(budget=20, journal=journal)
    assert resumed.to_dict() == whole.to_dict()
    kept = journal.read_text(encoding="utf-8").splitlines()
    assert kept[:8] == lines
    assert all(json.loads(line) for line in kept)


def test_what_is_bound_is_part_of_a_search() -> None:
    def bound(value: object) -> str:
        request = CompileRequest.of(tower(), bind={"x": value})
        return identity_of(request, load_model(tower()))["bound inputs"]

    zeros, ones = np.zeros(2), np.ones(2)
    values = [zeros, ones, {"x": zeros}, {"x": ones}, {"x": ones, "q": zeros}]
    assert len({bound(value) for value in values}) == len(values)
    assert bound({"x": zeros}) == bound({"x": zeros.copy()})


def test_the_journal_of_another_search(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    _tune(budget=2, journal=journal)
    with pytest.raises(UsageError, match="shapes, dims and outputs differs"):
        _tune(16, budget=2, journal=journal)
    with pytest.raises(UsageError, match="options"):
        _tune(options={"enable_inplace": False}, budget=2, journal=journal)
    with pytest.raises(UsageError, match="training"):
        _tune(train=_TRAIN, budget=2, journal=journal)
    journal.write_text("hello\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not a journal"):
        _tune(budget=2, journal=journal)


def test_the_command(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = str(tmp_path / "chosen.toml")
    given = tmp_path / "given.toml"
    given.write_text('kahnTieBreaker = "fifo"\n[anchors]\ny = "final"\n', encoding="utf-8")
    arguments = ["tune", model, "--dim", "batch=256", "--options", str(given), "-o", chosen]
    more = ["--target", small_target(tmp_path, kilobytes=48), "--budget", "12", "--jobs", "1"]
    document = _json([*arguments, *more], capsys)
    assert document["schema"] == "popc.tune/1"
    table = tomllib.loads(Path(chosen).read_text(encoding="utf-8"))
    assert table["kahnTieBreaker"] == "fifo"
    assert table["anchors"] == {"y": "final"}
    assert table["target"].endswith("small48.toml")
    assert not Path(f"{chosen}.journal").exists()
    archive = str(tmp_path / "tower.popx")
    compiled = ["compile", model, "--dim", "batch=256", "--options", chosen, "-o", archive]
    assert run(["-q", *compiled]) == 0
    assert run(["-q", *arguments, *more]) == 7  # the options file exists


def test_nothing_fits(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = small_target(tmp_path, kilobytes=8)
    chosen = tmp_path / "chosen.toml"
    arguments = ["tune", model, "--dim", "batch=256", "--target", target, "-o", str(chosen)]
    document = _json([*arguments, "--budget", "10", "--jobs", "1"], capsys, code=4)
    assert not document["fits"]
    assert not chosen.exists()
    assert run(["-q", *arguments, "--budget", "10", "--jobs", "1"]) == 4
    assert "lacks" in capsys.readouterr().out


def test_mistakes(model: str, tmp_path: Path) -> None:
    assert run(["-q", "tune", model, "-o", str(tmp_path / "x.json"), "--dim", "batch=2"]) == 2
    assert (
        run(["-q", "tune", model, "-o", str(tmp_path / "no" / "x.toml"), "--dim", "batch=2"]) == 7
    )
    assert run(["-q", "tune", model, "-o", str(tmp_path / "x.toml")]) == 2
