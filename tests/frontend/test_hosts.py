"""Models in other frameworks' formats: recognised, and answered with the commands that convert."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from popc.cli.main import run
from popc.frontend import load_model
from popc.frontend.hosts import recognise_model
from popc_runtime.errors import ModelError


def _file(name: str, content: bytes = b"") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def _zip(name: str, *members: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with ZipFile(folder / name, "w") as archive:
            for member in members:
                archive.writestr(member, "{}")
        return folder / name

    return make


def _folder(file: str, content: bytes = b"") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        inner = folder / "my model"
        inner.mkdir()
        (inner / file).write_bytes(content)
        return inner

    return make


_PIR = json.dumps({"base_code": {"magic": "pir", "version": 1}, "program": {}}).encode()


@pytest.mark.parametrize(
    ("make", "what", "command"),
    [
        (_folder("saved_model.pb"), "a SavedModel of TensorFlow", "python -m tf2onnx.convert"),
        (_folder("config.json", b'{"model_type": "bert"}'), "of transformers", "optimum-cli"),
        (_folder("net.pdmodel"), "a program of Paddle", "paddle2onnx"),
        (_file("net.pdmodel"), "a program of Paddle", "paddle2onnx"),
        (_file("net.json", _PIR), "a program of Paddle", "paddle2onnx"),
        (_zip("m.keras", "config.json", "model.weights.h5"), "a model of Keras", "python -c"),
        (_file("m.h5", b"\x89HDF\r\n\x1a\n"), "a model of Keras", "python -c"),
        (_zip("m.pt2", "m/archive_format"), "that torch.export has saved", "python -c"),
        (_zip("m.pt", "m/data.pkl"), "a file of PyTorch", ""),
    ],
)
def test_models_of_other_frameworks(
    make: Callable[[Path], Path], what: str, command: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(ModelError, match=what) as caught:
        load_model(path)
    found = recognise_model(path)
    assert found is not None
    assert caught.value.hint == found.hint
    assert (command in found.hint) if command else not found.hint
    if command:  # the words come back as they are when the line is pasted
        line = found.hint.split("then `")[1].split("`, and")[0]
        assert tuple(shlex.split(line)) == found.command
        assert str(path if path.suffix != ".json" else path.parent) in line or "net" in line


@pytest.mark.parametrize(
    "make",
    [
        _file("x.onnx", b"\x08"),
        _file("x.json", b'{"a": 1}'),
        _folder("x.onnx"),
        _folder("config.json", b"[1]"),
        _zip("x.zip", "a.txt"),
        _file("x.h5", b"no"),
        lambda folder: folder / "missing",
    ],
)
def test_what_nobody_else_owns_is_left_to_the_reader(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    assert recognise_model(make(tmp_path)) is None


def test_the_command_line_takes_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _folder("saved_model.pb")(tmp_path)
    assert run(["compile", str(path), "-o", str(tmp_path / "m.popx")]) == 3
    assert "tf2onnx" in capsys.readouterr().err
