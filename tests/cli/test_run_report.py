"""`popc run` without inputs, and with a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import popc
from popc.cli.root import run
from tests.support.models import affine


def _archive(folder: Path, **options: object) -> str:
    return str(popc.compile(affine(), options=options).save(folder / "model.popx", force=True))


def test_reports_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = _archive(
        tmp_path, instrument_with_hardware_cycle_counter=True, synthetic_data_mode="zeros"
    )
    data, text = tmp_path / "cycles.json", tmp_path / "cycles.txt"
    assert run(["run", archive, "--steps", "3", "--report", str(data)]) == 0
    assert run(["run", archive, "--report", str(text)]) == 0
    assert json.loads(data.read_text())["runs"] == 3
    assert text.read_text().startswith("Execution report: 1 run on ipu2")
    capsys.readouterr()
    assert run(["run", archive, "--report", str(text)]) == 7
    assert "exists already" in capsys.readouterr().err
    assert run(["run", archive, "--report", str(text), "--force"]) == 0


def test_every_so_many_steps_have_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = _archive(
        tmp_path, instrument_with_hardware_cycle_counter=True, synthetic_data_mode="zeros"
    )
    file = tmp_path / "cycles.json"
    every = ["--report", str(file), "--report-every", "2"]
    assert run(["run", archive, "--steps", "5", *every]) == 0
    written = sorted(path.name for path in tmp_path.glob("cycles*"))
    assert written == ["cycles.2.json", "cycles.4.json"]
    assert json.loads((tmp_path / "cycles.4.json").read_text())["runs"] == 1
    capsys.readouterr()
    assert run(["run", archive, "--steps", "5", *every]) == 7
    assert "cycles.2.json exists already" in capsys.readouterr().err
    assert run(["run", archive, *every]) == 2
    assert "writes nothing in 1 step" in capsys.readouterr().err
    assert run(["run", archive, *every[2:]]) == 2
    assert "is about the file of --report FILE" in capsys.readouterr().err


def test_an_archive_that_knows_no_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = _archive(tmp_path, synthetic_data_mode="zeros")
    assert run(["run", archive, "--report", str(tmp_path / "cycles.txt")]) == 2
    assert "instrument_with_hardware_cycle_counter" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        "default_buffering_depth=2",
        "buffering_depth_map.x=3",
        "enable_prefetch_datastreams=false",
        "synthetic_data_mode=zeros",
        "instrument_with_hardware_cycle_counter=true",
        "exchange_strategies.x=overlap_loops",
        "tile_sets.y=io",
    ],
)
def test_every_option_shows_its_effect(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx

    onnx.save(affine(), tmp_path / "m.onnx")
    needed = ["batches_per_step=4"]
    if option.startswith(("exchange", "tile")):
        needed.append("num_io_tiles=32")
    items = [part for item in (*needed, option) for part in ("--set", item)]
    command = ["--format", "json", "compile", str(tmp_path / "m.onnx"), "--explain-options", *items]
    capsys.readouterr()
    assert run(command) == 0
    effects = json.loads(capsys.readouterr().out)["options"]
    name = option.partition("=")[0].partition(".")[0]
    effect = next(item for item in effects if item["option"] == name)
    assert effect["has_effect"], effect
