"""Models in other frameworks' formats: recognised, and answered with the commands that convert."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from popc.cli.root import run
from popc.frontend import converter_script, load_model
from popc.frontend.hosts import recognise_model
from popc_runtime.errors import ModelError, SpokenHint


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


_KINDS: Final = [
    (_folder("saved_model.pb"), "a SavedModel of TensorFlow", "saved_model"),
    (_folder("config.json", b'{"model_type": "bert"}'), "of transformers", "transformers"),
    (_folder("net.pdmodel"), "a program of Paddle", "paddle"),
    (_folder("net.json", _PIR), "a program of Paddle", "paddle"),
    (_file("net.pdmodel"), "a program of Paddle", "paddle"),
    (_file("net.json", _PIR), "a program of Paddle", "paddle"),
    (_zip("m.keras", "config.json", "model.weights.h5"), "a model of Keras", "keras"),
    (_file("m.h5", b"\x89HDF\r\n\x1a\n"), "a model of Keras", "keras"),
    (_file("m.tflite", b"\x1c\0\0\0TFL3"), "of TensorFlow Lite", "tensorflow_lite"),
    (_zip("m.pt2", "m/archive_format"), "that torch.export has saved", "torch_export"),
]


@pytest.mark.parametrize(("make", "what", "kind"), _KINDS)
def test_models_of_other_frameworks(
    make: Callable[[Path], Path], what: str, kind: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(ModelError, match=what) as caught:
        load_model(path)
    found = recognise_model(path)
    assert found is not None
    assert found.kind == kind
    assert callable(getattr(converter_script, kind))
    hint = caught.value.hint
    assert isinstance(hint, SpokenHint)
    install, compile_ = hint.command_line.split("`")[1::2]
    assert install.startswith("python3 -m venv converter && converter/bin/python -m pip install ")
    words = shlex.split(compile_)  # they come back as they are when the line is pasted
    assert words == [
        "popc", "compile", str(path), "--converter-python", "converter/bin/python"
    ]  # fmt: skip


def test_files_of_objects_are_not_converted(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a file of PyTorch") as caught:
        load_model(_zip("m.pt", "m/data.pkl")(tmp_path))
    assert not caught.value.hint


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
    assert "--converter-python" in capsys.readouterr().err
