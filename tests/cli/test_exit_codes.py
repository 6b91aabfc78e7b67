"""Every exit code of the command line, by the mistake that causes it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import helper

from popc.cli.root import run
from tests.support.models import affine


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(affine(), path)
    return path


@pytest.fixture
def archive(model: Path) -> Path:
    assert run(["-q", "compile", str(model)]) == 0
    return model.with_suffix(".popx")


def _text(folder: Path) -> Path:
    (folder / "text").write_text("x")
    return folder / "text"


def _unsupported(folder: Path) -> Path:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], domain="com.example", name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Defrobnicate", ["b"], ["y"], domain="com.example", name="second"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2])], [value("y", 1, [2])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = folder / "unsupported.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def _with_options(content: bytes) -> Callable[[Path, Path], list[str]]:
    def arguments(model: Path, archive: Path) -> list[str]:
        del archive
        path = model.with_name("options.toml")
        path.write_bytes(content)
        return ["compile", str(model), "--options", str(path)]

    return arguments


def _emptied(archive: Path) -> str:
    archive.write_bytes(b"")
    return str(archive)


_CASES: list[tuple[str, int, Callable[[Path, Path], list[str]], str]] = [
    ("no command", 2, lambda m, a: [], "a command is missing"),
    ("unknown command", 2, lambda m, a: ["compil"], "No such command"),
    ("missing model", 2, lambda m, a: ["compile", "nowhere.onnx"], "does not exist"),
    (
        "unknown option",
        2,
        lambda m, a: ["compile", str(m), "--set", "kahn_tie_braker=fifo"],
        "did you mean kahn_tie_breaker?",
    ),
    (
        "bad value",
        2,
        lambda m, a: ["compile", str(m), "--set", "batches_per_step=0"],
        "must be at least 1",
    ),
    (
        "bad anchor",
        2,
        lambda m, a: [
            "compile",
            str(m),
            "--set",
            "batches_per_step=4",
            "--set",
            "anchors.y=every_n:3",
        ],
        "does not divide batches_per_step (4)",
    ),
    (
        "known PopART option",
        2,
        lambda m, a: ["compile", str(m), "--set", "enableEngineCaching=true"],
        "is an option of PopART",
    ),
    (
        "stage without text",
        2,
        lambda m, a: ["compile", str(m), "--stop-after", "pack"],
        "is not one of",
    ),
    (
        "archive over model",
        2,
        lambda m, a: ["compile", str(m), "-o", str(m), "--force"],
        "would replace the model",
    ),
    ("archive without a name", 2, lambda m, a: ["compile", str(m), "-o", "-.popx"], "a name"),
    ("root option unfinished", 2, lambda m, a: ["check", str(m), "--format"], "an argument"),
    ("misspelt command", 2, lambda m, a: ["verfy", str(m)], "did you mean verify?"),
    ("option without name", 2, lambda m, a: ["options", ""], "there is no option ''"),
    ("empty size", 2, lambda m, a: ["compile", str(m), "--shape", "x=1,,2"], "expected integers"),
    ("source missing", 2, lambda m, a: ["run", str(a), "-i", "x="], "expected NAME=SOURCE"),
    ("not an array", 7, lambda m, a: ["run", str(a), "-i", f"x={m}"], "is not a .npy or .npz file"),
    ("bad tolerance", 2, lambda m, a: ["verify", str(m), "--rtol", "nan"], "must not be negative"),
    ("bad shape", 2, lambda m, a: ["compile", str(m), "--shape", "x=one"], "expected integers"),
    ("not ONNX", 3, lambda m, a: ["compile", __file__, "-o", str(a) + "2"], ""),
    ("unsupported ops", 3, lambda m, a: ["compile", str(_unsupported(m.parent))], "Defrobnicate"),
    ("check says no", 1, lambda m, a: ["check", str(_unsupported(m.parent))], "Frobnicate"),
    ("archive is a model", 5, lambda m, a: ["export", str(m), "-o", str(m.parent / "new")], ""),
    ("neither model nor archive", 3, lambda m, a: ["run", str(_text(m.parent))], "a text file"),
    ("missing input", 6, lambda m, a: ["run", str(a)], "input 'x' is missing"),
    ("unknown input", 2, lambda m, a: ["run", str(a), "-i", "z=random:0"], "no input 'z'"),
    ("missing file", 2, lambda m, a: ["run", str(a), "-i", "x=nowhere.npy"], "no file nowhere.npy"),
    ("missing options", 2, lambda m, a: ["compile", str(m), "--options", "no.toml"], "no.toml"),
    ("output exists", 7, lambda m, a: ["compile", str(m)], "exists already"),
    ("unwritable output", 7, lambda m, a: ["compile", str(m), "-o", "/nowhere/at/all.popx"], ""),
    (
        "no folder for the output",
        7,
        lambda m, a: ["compile", str(m), "-o", str(m.parent / "no" / "y.popx")],
        "error: cannot write",
    ),
    (
        "too many threads",
        2,
        lambda m, a: ["run", str(a), "-i", "x=random:0", "--threads", "9" * 20],
        "is not in the range",
    ),
    (
        "checks without numpy",
        2,
        lambda m, a: ["run", str(a), "--fp-checks", "--engine", "native"],
        "--engine numpy",
    ),
    ("options that are no text", 2, _with_options(b"\x08\xff"), "options.toml cannot be parsed: "),
    (
        "two ways to show options",
        2,
        lambda m, a: ["compile", str(m), "--dump-options", "--explain-options"],
        "exclude each other",
    ),
    ("empty archive to inspect", 5, lambda m, a: ["inspect", _emptied(a)], "the file is empty"),
    ("empty archive to check", 5, lambda m, a: ["check", _emptied(a)], "the file is empty"),
    (
        "figures that are none",
        7,
        lambda m, a: ["bench", str(a), "--runs", "1", "--compare", str(m)],
        "does not hold figures of popc bench\nhint: popc bench --save FILE",
    ),
    ("success", 0, lambda m, a: ["check", str(a)], ""),
]


@pytest.mark.parametrize(
    ("expected", "arguments", "message"),
    [case[1:] for case in _CASES],
    ids=[case[0] for case in _CASES],
)
def test_exit_code_and_message(
    expected: int,
    arguments: Callable[[Path, Path], list[str]],
    message: str,
    model: Path,
    archive: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(arguments(model, archive)) == expected
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert "Traceback" not in captured.err
    if expected > 1:
        assert captured.out == ""
        assert captured.err.count("error: ") == 1

    assert run(["--format", "json", *arguments(model, archive)]) == expected
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == expected
    assert document["status"] == {0: "ok", 1: "negative"}.get(expected, "error")


def test_an_output_without_a_folder_is_noticed_at_once(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", str(model), "-o", str(model.parent / "no" / "y.popx")]) == 7
    assert capsys.readouterr().err.startswith("error: cannot write"), "no stage has run"


def test_several_option_mistakes_are_reported_at_once(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", "kahn_tie_breaker=lifo", "--set", "verify_ir=perhaps", "--set", "nonsense=1"]
    assert run(["compile", str(model), *wrong]) == 2
    err = capsys.readouterr().err
    assert "3 options are wrong" in err
    for name in ("kahn_tie_breaker", "verify_ir", "nonsense"):
        assert name in err


def test_corrupt_archive(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    assert run(["run", str(archive), "-i", "x=random:0"]) == 5
    assert "error: " in capsys.readouterr().err


def test_internal_errors_leave_a_report(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("popc.api.compile_program", fail)
    assert run(["compile", str(model)]) == 70
    err = capsys.readouterr().err
    report = Path(err.rpartition("with the file ")[2].strip())
    assert "RuntimeError: boom" in report.read_text()
    report.unlink()


@pytest.mark.parametrize("module", ["popc.cli.root", "click", "popc.cli.verbs.options", "numpy"])
def test_an_interruption_while_modules_are_imported_is_one_line(
    module: str, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from popc.cli import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "main()\n"
    )
    onnx.save(affine(), tmp_path / "m.onnx")
    verb = ["options"] if "options" in module else ["compile", str(tmp_path / "m.onnx")]
    done = subprocess.run(
        [sys.executable, "-c", script, *verb], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_no_files(number: int, code: int, tmp_path: Path) -> None:
    """A signal in the middle of a write removes what was written."""
    script = (
        "import signal, sys, time\n"
        "from popc.cli import main\n"
        "from popc_runtime.format import writer\n"
        # Ignored signals are inherited, and background jobs of a shell ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "inner = writer._Writer.write\n"
        "def slow(self, *rest):\n"
        "    inner(self, *rest); print('writing', flush=True); time.sleep(600)\n"
        "writer._Writer.write = slow\n"
        f"sys.argv = ['popc', '-q', 'compile', {str(tmp_path / 'm.onnx')!r}]\n"
        "main()\n"
    )
    onnx.save(affine(), tmp_path / "m.onnx")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "writing\n"
            process.send_signal(number)
            assert process.wait(300) == code
        finally:
            process.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


def test_results_go_to_files(archive: Path, tmp_path: Path) -> None:
    x = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    np.save(tmp_path / "x.npy", x)
    folder = tmp_path / "results"
    arguments = ["-q", "run", str(archive), "-i", f"x={tmp_path / 'x.npy'}", "-o", str(folder)]
    assert run(arguments) == 0
    first = np.load(folder / "y.npy")
    assert run(arguments) == 7, "an existing file must not be replaced"
    assert run([*arguments, "--force", "--steps", "2"]) == 0
    np.testing.assert_array_equal(np.load(folder / "y.npy"), np.stack([first, first]))


def test_a_full_disk_leaves_nothing_behind(
    archive: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    saved = tmp_path / "figures.json"
    assert run(["bench", str(archive), "--runs", "1", "--save", str(saved)]) == 7
    assert "No space left" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.popx"}


def test_errors_of_the_system_have_no_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(text: str, **settings: object) -> None:
        del text
        if not settings.get("err"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(click, "echo", full)
    assert run(["targets"]) == 7
    monkeypatch.undo()
    assert "Errno" not in capsys.readouterr().err


def test_a_device_is_written_to_not_replaced(archive: Path) -> None:
    assert run(["-q", "bench", str(archive), "--runs", "1", "--save", os.devnull]) == 0
    assert not Path(os.devnull).is_file()
