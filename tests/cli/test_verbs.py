"""What each verb prints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from popc.cli.root import run
from popc.cli.verbs import VERBS
from popc.options import SCHEMA
from tests.support.models import affine


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    onnx.save(affine("N"), tmp_path / "model.onnx")
    assert run(["-q", "compile", str(tmp_path / "model.onnx"), "--dim", "N=2"]) == 0
    return tmp_path / "model.popx"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("verb", [[], *([verb] for verb in VERBS)])
def test_help_leads_with_examples(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage: popc" in out
    assert f"popc {' '.join(verb)}".strip() in out


def test_compile_is_silent_when_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    assert run(["-q", "compile", str(tmp_path / "m.onnx")]) == 0
    assert capsys.readouterr() == ("", "")


def test_compile_reports_one_line_per_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), "--time-passes"]) == 0
    captured = capsys.readouterr()
    stages = ["import", "transform", "schedule", "plan", "lower", "pack"]
    assert [line.split()[0] for line in captured.err.splitlines()] == stages
    assert "total" in captured.out


def test_emit_ir_and_stop_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    folder = tmp_path / "ir"
    assert run(["-q", "compile", str(tmp_path / "m.onnx"), "--emit-ir", str(folder)]) == 0
    assert [path.name for path in sorted(folder.iterdir())] == [
        "1-import.txt",
        "2-transform.txt",
        "3-schedule.txt",
        "4-plan.txt",
        "5-lower.txt",
        "final.txt",
        "fwd0.txt",
        "fwd1.txt",
        "main_loops.txt",
        "pre_alias.txt",
    ]
    capsys.readouterr()
    assert run(["-q", "compile", str(tmp_path / "m.onnx"), "--stop-after", "import"]) == 0
    assert capsys.readouterr().out == (folder / "1-import.txt").read_text()


_L1 = """
[loss]
type = "l1"
input = "y"
[optimizer]
type = "sgd"
"""


def test_emit_graphs_of_a_training_step(tmp_path: Path) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    (tmp_path / "t.toml").write_text(_L1)
    arguments = ["-q", "compile", str(tmp_path / "m.onnx"), "--train", str(tmp_path / "t.toml")]
    arguments += ["--emit-ir", str(tmp_path / "ir"), "--emit-dot", str(tmp_path / "dot")]
    chosen = ["--at", "fwd0", "--at", "bwd0", "--at", "final"]
    assert run([*arguments, *chosen, "-o", str(tmp_path / "t.popx")]) == 0
    assert [path.name for path in sorted((tmp_path / "ir").iterdir())] == [
        "bwd0.txt",
        "final.txt",
        "fwd0.txt",
    ]
    assert "CopyVarUpdate" in (tmp_path / "ir" / "bwd0.txt").read_text()
    assert "CopyVarUpdate" not in (tmp_path / "ir" / "fwd0.txt").read_text()
    assert (tmp_path / "dot" / "final.dot").read_text().startswith("digraph")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "final"], "need a folder to write to"),
        (["--emit-dot", "d", "--dot-ops", "1-2"], "FIRST:LAST"),
        (["--emit-dot", "d", "--dot-ops", "5:5"], "contains no op"),
    ],
)
def test_emitting_nothing_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    assert run(["compile", str(tmp_path / "m.onnx"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_options_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(["options"], capsys)["options"]
    assert [row["name"] for row in rows] == [spec.name for spec in SCHEMA]
    assert all(row["help"] for row in rows)
    assert _json(["options", "kahnTieBreaker"], capsys)["options"][0]["default"] == "greedy"
    assert run(["options", "kahn"]) == 2


def test_dump_options_tells_origins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "o.toml").write_text('weights = "mmap"\nfold_limit_bytes = 5\n')
    monkeypatch.setenv("POPC_FOLD_LIMIT_BYTES", "7")
    onnx.save(affine(), tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "--options", str(tmp_path / "o.toml")]
    options = _json([*arguments, "--set", "verify_ir=yes", "--dump-options"], capsys)["options"]
    assert options["weights"] == {"value": "mmap", "origin": "file"}
    assert options["fold_limit_bytes"] == {"value": 7, "origin": "env"}
    assert options["verify_ir"] == {"value": True, "origin": "cli"}
    assert options["kahn_tie_breaker"] == {"value": "greedy", "origin": "default"}


def test_inspect_archive(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = _json(["inspect", str(archive)], capsys)
    plain: dict[str, Any] = {"labels": [], "label_kind": None, "sizes": []}
    assert document["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3], **plain}]
    assert document["programs"] == ["main"]
    for section in ("summary", "streams", "options", "blobs", "program"):
        assert run(["inspect", str(archive), "--section", section]) == 0
        assert capsys.readouterr().out.strip()
    assert run(["inspect", str(archive), "--section", "nodes"]) == 2
    shown = ["inspect", str(archive), "--section", "options"]
    for more, lines in (([], 1), (["--all"], sum(spec.recorded for spec in SCHEMA))):
        capsys.readouterr()
        assert run([*shown, *more]) == 0
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_inspect_model(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = archive.with_suffix(".onnx")
    document = _json(["inspect", str(model)], capsys)
    assert document["op_counts"] == {"Add": 1, "Mul": 1, "Relu": 1}
    assert document["inputs"] == ["x: float32[N,3]"]
    assert run(["inspect", str(model), "--section", "program"]) == 2


def test_verify_agrees_and_bench_reports(
    archive: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = archive.with_suffix(".onnx")
    document = _json(["verify", str(model), "--dim", "N=2", "--all"], capsys)
    assert [row["name"] for row in document["tensors"]] == ["r", "m", "y"]
    assert document["mismatches"] == []
    assert run(["verify", str(archive)]) == 2
    assert run(["verify", str(archive), "--model", str(model)]) == 0

    saved = tmp_path / "bench.json"
    document = _json(
        ["bench", str(archive), "--runs", "5", "--where", "--save", str(saved)], capsys
    )
    assert document["latency_seconds"]["p50"] <= document["latency_seconds"]["p99"]
    assert {row["opcode"] for row in document["where"]} >= {"HostLoad", "HostStore"}
    compared = ["bench", str(archive), "--runs", "5", "--compare", str(saved)]
    assert run([*compared, "--fail-over", "100000%"]) == 0
    assert run([*compared, "--fail-over", "-100%"]) == 1


def test_verify_finds_a_wrong_archive(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(archive.with_suffix(".onnx"))
    model.graph.node[1].op_type = "Sub"
    other = archive.with_name("other.onnx")
    onnx.save(model, other)
    document = _json(["verify", str(archive), "--model", str(other)], capsys, code=1)
    assert document["first_divergence"]["name"] == "y"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from popc.cli.root import run; run(['completion', {shell!r}])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_POPC_COMPLETE" in done.stdout


def test_doctor_names_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert "numpy" in _json(["doctor"], capsys)["packages"]


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        ("n.onnx --dim N=1,2..3 --split N", 0, ["N=1  compiles", "N=3  compiles", "holds all"]),
        ("n.onnx --shapes x=1,3 --shapes x=2,3", 0, ["x=1,3  compiles", "x=2,3  compiles"]),
        ("m.onnx --dim N=1,2", 0, ["N=2  compiles"]),
        ("m.onnx --dim N=1,2 --split N", 1, ["N=1  compiles", "not as one archive", "samples"]),
        (
            "wide.onnx --dim N=1,4096 --set target=ipu2 --set tiles_per_ipu=1",
            1,
            ["N=1     compiles", "N=4096  does not compile: the program does not fit ipu2"],
        ),
    ],
)
def test_check_takes_several_sizes(
    arguments: str,
    code: int,
    lines: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(affine("N"), "n.onnx")
    onnx.save(affine("N", 1024), "wide.onnx")
    mean = '<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] x) => (float[3] y) {'
    onnx.save(parser.parse_model(mean + "y = ReduceMean <axes = [0], keepdims = 0> (x)}"), "m.onnx")
    assert run(["-q", "check", *arguments.split()]) == code
    told = capsys.readouterr().out
    for line in lines:
        assert line in told
