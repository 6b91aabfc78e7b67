"""popc report, popc diff, and compiling within a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

import popc
from popc.cli.root import run
from popc_runtime.errors import BudgetError
from samples.networks import digits_cnn
from tests.support.models import affine


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "digits.onnx"
    onnx.save(digits_cnn(), path)
    return str(path)


@pytest.fixture
def archive(model: str, tmp_path: Path) -> str:
    return _compiled(model, tmp_path / "digits.popx", "--set", "cost_report=true")


def _compiled(model: str, path: Path, *more: str) -> str:
    assert run(["-q", "compile", model, "-o", str(path), "--dim", "batch=4", *more]) == 0
    return str(path)


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", "-q", *arguments]) == code
    return json.loads(capsys.readouterr().out)


# -- report ----------------------------------------------------------------------------------------


def test_a_report_as_text(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "report", archive]) == 0
    out = capsys.readouterr().out
    for part in ("Graph report", "compute sets", "not always live", "vertex code", "Peak at step"):
        assert part in out
    assert run(["-q", "report", archive, "--section", "memory", "--all"]) == 0
    out = capsys.readouterr().out
    assert "Graph report" not in out
    assert out.count("conv_2") > 1, "every step of the schedule"


def test_a_report_as_json(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = _json(["report", archive, "--section", "execution"], capsys)
    assert document["schema"] == "popc.report/1"
    assert "graph" not in document
    assert "program_steps" not in document["execution"]
    full = _json(["report", archive, "--all"], capsys)
    assert len(full["memory"]["ipus"][0]["by_tile"]["total"]) == 1472
    assert full["execution"]["program_steps"][0]["phases"]


def test_reports_go_to_files(
    archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "r.html", tmp_path / "r.json"
    arguments = ["-q", "report", archive, "--html", str(page), "--json", str(data)]
    assert run(arguments) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(data.read_text(encoding="utf-8"))["memory"]["ipus"][0]["liveness"]
    assert run(arguments) == 7
    assert "exists already" in capsys.readouterr().err
    assert run([*arguments, "--force", "--text"]) == 0
    assert "Execution report" in capsys.readouterr().out


def test_a_model_is_compiled_for_its_report(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _json(["report", model, "--dim", "batch=2", "--set", "target=bow"], capsys)
    assert document["summary"]["target"]["name"] == "bow"
    # What does not fit is told, not refused: that is what reports are for.
    small = ["report", model, "--dim", "batch=512", "--set", "tiles_per_ipu=1"]
    assert not _json(small, capsys)["summary"]["fits"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.onnx"]


def test_mistakes_with_reports(
    archive: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = _compiled(model, tmp_path / "plain.popx")
    assert run(["-q", "report", plain]) == 2
    assert "plain.popx has no cost report" in capsys.readouterr().err
    assert run(["-q", "report", archive, "--dim", "batch=3"]) == 2
    assert "this archive is already compiled" in capsys.readouterr().err
    assert run(["-q", "report", archive, "--html", str(tmp_path / "no" / "r.html")]) == 7
    assert "cannot write" in capsys.readouterr().err


def test_the_library_of_the_page_is_optional(
    archive: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("popc.reporting.render.find_spec", lambda name: None)
    assert run(["-q", "report", archive, "--html", str(tmp_path / "r.html")]) == 7
    assert "pip install 'popc[report]'" in capsys.readouterr().err
    assert run(["-q", "report", archive]) == 0


# -- diff ------------------------------------------------------------------------------------------


def test_equal_programs_do_not_differ(
    archive: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-q", "diff", archive, archive]) == 0
    assert "the same program" in capsys.readouterr().out
    assert _json(["diff", archive, model, "--dim", "batch=4"], capsys)["same"]


def test_a_difference_is_told_with_what_matters_first(
    archive: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = _compiled(
        model, tmp_path / "b.popx", "--set", "cost_report=true", "--set", "target=bow"
    )
    assert run(["-q", "diff", archive, other]) == 1
    assert "target" in capsys.readouterr().out
    assert run(["-q", "diff", archive, model, "--dim", "batch=8"]) == 1
    out = capsys.readouterr().out
    assert "more cycles" in out.splitlines()[0]
    for title in ("Cycles", "Bytes of the busiest tile", "Ops that changed", "Inputs"):
        assert title in out
    document = _json(["diff", archive, model, "--dim", "batch=8"], capsys, 1)
    assert document["schema"] == "popc.diff/1"
    assert document["status"] == "negative"
    assert document["costs"]["ops"]["changed"]


def test_archives_without_costs_are_compared_as_far_as_they_go(
    archive: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = _compiled(model, tmp_path / "plain.popx", "--set", "enable_inplace=false")
    assert run(["diff", archive, plain]) == 1
    captured = capsys.readouterr()
    assert "costs are not compared: plain.popx has no cost report" in captured.out
    assert "plain.popx has no cost report" in captured.err
    assert "enable_inplace" in captured.out


def test_mistakes_with_diff(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "diff", archive, archive, "--set", "target=bow"]) == 2
    assert "compiler options apply to models only" in capsys.readouterr().err
    assert run(["-q", "diff", archive, __file__]) == 3


# -- budget ----------------------------------------------------------------------------------------


def _file(folder: Path, text: str) -> str:
    path = folder / "options.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_what_costs_too_much_is_not_written(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = _file(
        tmp_path,
        "[budget]\nmax_cycles = 1000\nmax_bytes_per_tile = 1000\nmax_archive_bytes = 1000\n"
        "max_arena_bytes = 1000\nmax_constant_bytes = 1000\nmax_instructions = 1\n",
    )
    arguments = ["compile", model, "--dim", "batch=4", "--options", options]
    assert run(["-q", *arguments]) == 1
    err = capsys.readouterr().err
    for name in ("cycles", "bytes_per_tile", "archive_bytes", "arena_bytes", "instructions"):
        assert f"max_{name}: " in err
    for part in ("most by layer", "conv_2 (Conv)", "by category", "biggest weights"):
        assert part in err
    document = _json(arguments, capsys, 1)
    assert document["status"] == "negative"
    cycles = document["report"]["max_cycles"]
    assert cycles["over"] == cycles["value"] - 1000 > 0
    assert cycles["contributors"]["most by op"]
    assert not (tmp_path / "digits.popx").exists()


def test_what_stays_within_is_written(model: str, tmp_path: Path) -> None:
    limits = dict.fromkeys(("max_cycles", "max_bytes_per_tile", "max_archive_bytes"), 10**9)
    text = "[budget]\n" + "".join(f"{name} = {limit}\n" for name, limit in limits.items())
    path = _compiled(model, tmp_path / "m.popx", "--options", _file(tmp_path, text))
    assert Path(path).exists()


def test_a_limit_on_the_file_holds(model: str, tmp_path: Path) -> None:
    path = Path(_compiled(model, tmp_path / "m.popx", "--set", "budget.max_archive_bytes=999999"))
    size = path.stat().st_size
    arguments = ["-q", "compile", model, "-o", str(path), "--force", "--dim", "batch=4", "--set"]
    # The limit is itself in the file, which is compressed: a few bytes more or less.
    assert run([*arguments, f"budget.max_archive_bytes={size - 20}"]) == 1
    assert path.stat().st_size == size
    assert run([*arguments, f"budget.max_archive_bytes={size + 20}"]) == 0


def test_growth_is_told_by_op(archive: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-q", "compile", model, "-o", "new.popx", "--dim", "batch=64", "--set"]
    assert run([*arguments, "budget.max_cycles=10000", "--against", archive]) == 1
    err = capsys.readouterr().err
    assert "in digits.popx" in err
    assert "grown by op" in err
    assert "  +" in err
    assert not Path("new.popx").exists()


def test_mistakes_with_budgets(
    archive: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["-q", "compile", model, "-o", "new.popx", "--dim", "batch=4"]
    assert run([*base, "--set", "budget.max_cycle=3"]) == 2
    assert "did you mean max_cycles?" in capsys.readouterr().err
    assert run([*base, "--set", "budget.max_cycles=0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err
    assert run([*base, "--against", archive]) == 2
    assert "no budget" in capsys.readouterr().err
    assert run([*base, "--against", archive, "--dump-options"]) == 2
    assert run([*base, "--against", model, "--set", "budget.max_cycles=3"]) == 5


def test_a_training_step_has_a_budget_and_a_report(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "train.toml"
    recipe.write_text(
        '[loss]\ntype = "cross_entropy"\ninput = "logits"\nlabel = "label"\n'
        '[optimizer]\ntype = "sgd"\nlearning_rate = 0.1\n',
        encoding="utf-8",
    )
    train = [model, "--dim", "batch=4", "--train", str(recipe)]
    document = _json(["report", *train], capsys)
    assert document["execution"]["cycles_by_op_type"]["CopyVarUpdate"] >= 0
    kinds = {row["kind"] for row in document["memory"]["ipus"][0]["biggest_tensors"]}
    assert "variable" in kinds
    assert run(["-q", "compile", *train, "--set", "budget.max_cycles=100"]) == 1
    assert "most by layer" in capsys.readouterr().err


def test_budgets_in_python() -> None:
    with pytest.raises(BudgetError) as caught:
        popc.compile(affine(), options={"budget": {"max_instructions": 1, "max_cycles": 10**9}})
    assert caught.value.exit_code == 1
    assert caught.value.report["max_instructions"]["limit"] == 1
    assert "max_cycles" not in caught.value.report
