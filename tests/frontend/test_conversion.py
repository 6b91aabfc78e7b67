"""Models of other frameworks: an interpreter of the user's converts them, the result is kept.

The interpreter is a script that writes a model that was made before; `tests/hosts` asks real ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.cli.root import run
from popc.frontend import Converter, load_model
from popc.progress import ProgressEvent, Stage
from popc_runtime.errors import ModelError, OptionError, ResourceError, UsageError
from tests.support.models import affine, expected_affine

_Fake = Callable[..., Path]

_GOOD: Final = """
sys.stderr.write("loading\\n")
shutil.copy(here / "made.onnx", result)
(here / "calls").open("a").write(" ".join([*sys.argv[1:3], kind, Path(model).name]) + "\\n")
print('{"host": "1.2"}')
"""


@pytest.fixture
def fake(tmp_path: Path) -> _Fake:
    """An interpreter that does something else than to run what it is given."""

    def make(body: str = _GOOD) -> Path:
        onnx.save(affine(), tmp_path / "made.onnx")
        head = (
            f"#!{sys.executable} -S\nimport shutil, sys\nfrom pathlib import Path\n"
            f"here = Path({str(tmp_path)!r})\nkind, model, result = sys.argv[4:]\n"
        )
        path = tmp_path / "python"
        path.write_text(head + body)
        path.chmod(0o755)
        return path

    return make


def _keras(folder: Path, content: str = "{}") -> Path:
    path = folder / "net.keras"
    with ZipFile(path, "w") as archive:
        archive.writestr("model.weights.h5", content)
    return path


def _calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_a_model_is_converted_and_the_result_kept(fake: _Fake, tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    archive = popc.compile(
        _keras(tmp_path), options={"converter_python": fake()}, on_progress=events.append
    )
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    assert popc_runtime.load(archive).run({"x": x})["y"] == expected_affine(x)
    assert _calls(tmp_path) == ["-I -u keras net.keras"]
    metadata = archive.manifest.provenance
    assert metadata["file"] == "net.onnx"
    assert metadata["metadata.popc.converted_by"] == "host 1.2"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "calls", "made.onnx", "net.keras", "net.onnx", "python"
    ]  # fmt: skip
    assert next(event.stage for event in events if event.seconds is not None) is Stage.CONVERT
    assert not [row for row in archive.manifest.options if row.name == "converter_python"]


def test_what_has_not_changed_is_not_converted_again(fake: _Fake, tmp_path: Path) -> None:
    converter = Converter(str(fake()))
    first = load_model(_keras(tmp_path), converter=converter)
    assert load_model(tmp_path / "net.keras", converter=converter).sha256 == first.sha256
    assert len(_calls(tmp_path)) == 1
    load_model(_keras(tmp_path, "[]"), converter=converter)
    assert len(_calls(tmp_path)) == 2


def test_weights_beside_a_program_count(fake: _Fake, tmp_path: Path) -> None:
    (tmp_path / "net.pdmodel").touch()
    for content in ("a", "a", "b"):
        (tmp_path / "net.pdiparams").write_text(content)
        load_model(tmp_path / "net.pdmodel", converter=Converter(str(fake())))
    assert _calls(tmp_path) == ["-I -u paddle net.pdmodel"] * 2


def test_a_model_that_nobody_converted_is_not_replaced(fake: _Fake, tmp_path: Path) -> None:
    path = _keras(tmp_path)
    converter = Converter(str(fake()))
    (tmp_path / "made.onnx").rename(tmp_path / "net.onnx")
    with pytest.raises(UsageError, match=r"net\.onnx exists"):
        load_model(path, converter=converter)
    fake()
    load_model(path, converter=Converter(converter.python, str(tmp_path / "kept")))
    assert (tmp_path / "kept" / "net.onnx").is_file()


@pytest.mark.parametrize(
    ("body", "message", "detail", "hint"),
    [
        ("print('bad layer'); sys.exit(3)", "exit status 3", "bad layer", "export the model"),
        ("import no_such_module", "exit status 1", "No module named", "install what it lacks"),
        ("print('done')", "failed to write a model", "done", "export the model"),
    ],
)
def test_failures_show_the_last_words(
    fake: _Fake, body: str, message: str, detail: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(_keras(tmp_path), converter=Converter(str(fake(body))))
    assert detail in caught.value.details[-1]
    assert hint in caught.value.hint
    assert not (tmp_path / "net.onnx").exists()
    assert not list(tmp_path.glob(".net*")), "nothing is left behind"


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"converter_python is .*nothing, which cannot be run"):
        load_model(_keras(tmp_path), converter=Converter(str(tmp_path / "nothing")))


def test_a_folder_that_is_none(fake: _Fake, tmp_path: Path) -> None:
    path = _keras(tmp_path)
    with pytest.raises(ResourceError, match=r"cannot convert .*net\.keras"):
        load_model(path, converter=Converter(str(fake()), str(path)))


def test_the_command_line(
    fake: _Fake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model lies beside the archive; other verbs take an interpreter as well."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    (tmp_path / "out").mkdir()
    python, saved, archive = (
        str(path) for path in (fake(), tmp_path / "saved", tmp_path / "out" / "m.popx")
    )
    assert run(["compile", saved, "-o", archive, "--converter-python", python]) == 0
    assert "convert" in capsys.readouterr().err
    assert (tmp_path / "out" / "saved.onnx").is_file()
    monkeypatch.setenv("POPC_CONVERTER_PYTHON", python)
    monkeypatch.setenv("POPC_ONNX_FOLDER", str(tmp_path / "out"))
    assert run(["check", saved, "--set", "verify_ir=true"]) == 0
    assert run(["estimate", saved]) == 0
    assert len(_calls(tmp_path)) == 1
