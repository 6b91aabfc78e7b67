"""Models in the formats of other frameworks: what they are, and what makes ONNX models of them.

Every converter is a package of its framework, and they pin versions that exclude each other; so
popc names the commands, and runs none of it in its own process.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from popc_runtime.process.paths import open_regular

__all__ = ["ForeignModel", "recognise_model"]

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_KERAS_EXPORT: Final = (
    "import keras, sys; keras.saving.load_model(sys.argv[1]).export(sys.argv[2], format='onnx')"
)
_TORCH_EXPORT: Final = (
    "import sys, torch; "
    "torch.onnx.export(torch.export.load(sys.argv[1]), f=sys.argv[2], dynamo=True)"
)
_FIRST_BYTES: Final = 4096  # of a file, enough to tell its kind


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model that is not ONNX.

    Attributes:
        what: The kind of model, as what follows "is".
        packages: What pip installs for the converter.
        command: The words that run the converter; none if nothing converts it.
        result: The ONNX model that it writes.
    """

    what: str
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    result: str = ""

    @property
    def hint(self) -> str:
        """The commands that make an ONNX model of it."""
        if not self.command:
            return ""
        return (
            f"convert it, in an environment of its own: `pip install {' '.join(self.packages)}`, "
            f"then `{shlex.join(self.command)}`, and compile {self.result}"
        )


def recognise_model(path: Path) -> ForeignModel | None:
    """The kind of model at ``path``, a file or a folder; ``None`` if it is of no kind known here.

    Only what is certain from the content, or from a suffix that nobody else has, is recognised.
    """
    try:
        if path.is_dir():
            return _folder(path)
        with open_regular(path) as file:
            start = file.read(_FIRST_BYTES)
        return next((found for look in _LOOKS if (found := look(path, start))), None)
    except OSError:  # whoever reads the model says why
        return None


def _folder(path: Path) -> ForeignModel | None:
    if (path / "saved_model.pb").is_file():
        return _converted(
            "a SavedModel of TensorFlow",
            path,
            ("tensorflow-cpu", "tf2onnx"),
            ("python", "-m", "tf2onnx.convert", "--opset", "18", "--saved-model", "{}",
             "--output", "{onnx}"),
        )  # fmt: skip
    if any(path.glob("*.onnx")):
        return None
    if _is_of_transformers(path / "config.json"):
        command = ("optimum-cli", "export", "onnx", "--model", str(path), f"{path}_onnx")
        folder = "a folder of transformers"
        result = f"{path}_onnx/model.onnx"
        return ForeignModel(folder, ("optimum-onnx", "torch"), command, result)
    programs = sorted([*path.glob("*.pdmodel"), *path.glob("__model__")])
    return _paddle_program(programs[0]) if programs else None


def _is_of_transformers(config: Path) -> bool:
    try:
        table = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and "model_type" in table


def _paddle(path: Path, start: bytes) -> ForeignModel | None:
    is_program = path.suffix == ".pdmodel"
    is_json = start.lstrip().startswith(b"{") and b'"base_code"' in start and b'"pir"' in start
    return _paddle_program(path) if is_program or is_json else None


def _paddle_program(program: Path) -> ForeignModel:
    folder = program.parent
    weights = program.with_suffix(".pdiparams")
    words = ("paddle2onnx", "--model_dir", str(folder), "--model_filename", program.name,
             "--params_filename", weights.name, "--save_file", "{onnx}")  # fmt: skip
    packages = ("paddlepaddle", "paddle2onnx", "packaging")
    return _converted("a program of Paddle", program, packages, words)


def _zip(path: Path, start: bytes) -> ForeignModel | None:
    if not start.startswith(b"PK\x03\x04"):
        return None
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(path) as archive:
            names = [name.rpartition("/")[2] for name in archive.namelist()]
    except (BadZipFile, ValueError):
        return None
    if "model.weights.h5" in names:
        return _keras(path)
    if path.suffix == ".pt2" or "serialized_exported_program.json" in names:
        return _converted(
            "a program that torch.export has saved",
            path,
            ("torch", "onnxscript"),
            ("python", "-c", _TORCH_EXPORT, "{}", "{onnx}"),
        )
    if "data.pkl" in names:
        return ForeignModel("a file of PyTorch, which holds Python objects: export it from Python")
    return None


def _hdf5(path: Path, start: bytes) -> ForeignModel | None:
    return _keras(path) if start.startswith(_HDF5) and path.suffix in (".h5", ".keras") else None


def _keras(path: Path) -> ForeignModel:
    words = ("python", "-c", _KERAS_EXPORT, "{}", "{onnx}")
    return _converted("a model of Keras", path, ("tensorflow-cpu", "tf2onnx"), words)


def _converted(
    what: str, path: Path, packages: tuple[str, ...], words: Sequence[str]
) -> ForeignModel:
    """``words`` with the model for ``{}``, and the ONNX model beside it for ``{onnx}``."""
    result = str(path.with_name(f"{path.stem}.onnx"))
    places = {"{}": str(path), "{onnx}": result}
    return ForeignModel(what, packages, tuple(places.get(word, word) for word in words), result)


_LOOKS: Final[tuple[Callable[[Path, bytes], ForeignModel | None], ...]] = (_paddle, _zip, _hdf5)
