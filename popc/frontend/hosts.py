"""Models in the formats of other frameworks: what they are, and what converts them to ONNX.

Every converter is a package of its framework, and they pin versions that exclude each other; so
each runs in an environment of its own (`conversion.py`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from popc_runtime.errors import SpokenHint
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.paths import open_regular

__all__ = ["ForeignModel", "recognise_model"]

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_FIRST_BYTES: Final = 4096  # of a file, enough to tell its kind
_ENVIRONMENT: Final = "converter"  # what hints call the folder


@frozen
class ForeignModel:
    """A model that is not ONNX.

    Attributes:
        what: The kind of model, as what follows "is".
        path: Where it is, as the user names it.
        kind: Its name in `converter_script.py`; "" if nothing converts it.
        program: The file that the converter is given; in most cases ``path``.
        packages: What pip installs for the converter.
    """

    what: str
    path: Path
    kind: str = ""
    program: Path = Path()
    packages: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it consists of, sorted."""
        if self.program.is_dir():
            return tuple(sorted(file for file in self.program.rglob("*") if file.is_file()))
        weights = self.program.with_suffix(".pdiparams")
        return (self.program, weights) if weights.is_file() else (self.program,)

    @property
    def name(self) -> str:
        """The name of the ONNX model that is made of it."""
        return f"{self.path.name if self.path.is_dir() else self.path.stem}.onnx"

    @property
    def hint(self) -> str:
        """The commands that compile it."""
        if not self.kind:
            return ""
        python = f"{_ENVIRONMENT}/bin/python"
        made = (
            "name the Python interpreter of an environment with its converter: "
            f"`python3 -m venv {_ENVIRONMENT} && {self.installation(python)}`, then "
        )
        path = shlex.quote(str(self.path))
        return SpokenHint(
            f"{made}popc.compile(..., options={{'converter_python': '{python}'}})",
            f"{made}`popc compile {path} --converter-python {python}`",
        )

    def installation(self, python: str) -> str:
        """The command that installs the converter for an interpreter."""
        return f"{shlex.quote(python)} -m pip install {' '.join(self.packages)}"


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
        return _tensorflow("a SavedModel of TensorFlow", path, "saved_model")
    if any(path.glob("*.onnx")):
        return None
    if _is_of_transformers(path / "config.json"):
        packages = ("torch", "transformers", "onnxscript")
        return ForeignModel("a folder of transformers", path, "transformers", path, packages)
    programs = sorted([*path.glob("*.pdmodel"), *path.glob("__model__"), *path.glob("*.json")])
    found = [each for program in programs if (each := _paddle_in(path, program))]
    return found[0] if len(found) == 1 else None


def _is_of_transformers(config: Path) -> bool:
    try:
        table = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and "model_type" in table


def _paddle_in(folder: Path, program: Path) -> ForeignModel | None:
    with open_regular(program) as file:
        start = file.read(_FIRST_BYTES)
    return _paddle(program, start, folder)


def _paddle(path: Path, start: bytes, folder: Path | None = None) -> ForeignModel | None:
    is_program = path.suffix == ".pdmodel" or path.name == "__model__"
    is_json = start.lstrip().startswith(b"{") and b'"base_code"' in start and b'"pir"' in start
    if not (is_program or is_json):
        return None
    packages = ("paddlepaddle", "paddle2onnx", "packaging")
    return ForeignModel("a program of Paddle", folder or path, "paddle", path, packages)


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
        return _tensorflow("a model of Keras", path, "keras")
    if path.suffix == ".pt2" or "serialized_exported_program.json" in names:
        what = "a program that torch.export has saved"
        return ForeignModel(what, path, "torch_export", path, ("torch", "onnxscript"))
    if "data.pkl" in names:
        what = "a file of PyTorch, which holds Python objects: export it from Python"
        return ForeignModel(what, path)
    return None


def _hdf5(path: Path, start: bytes) -> ForeignModel | None:
    if not (start.startswith(_HDF5) and path.suffix in (".h5", ".keras")):
        return None
    return _tensorflow("a model of Keras", path, "keras")


def _lite(path: Path, start: bytes) -> ForeignModel | None:
    if start[4:8] != b"TFL3":
        return None
    return _tensorflow("a model of TensorFlow Lite", path, "tensorflow_lite")


def _tensorflow(what: str, path: Path, kind: str) -> ForeignModel:
    return ForeignModel(what, path, kind, path, ("tensorflow-cpu", "tf2onnx"))


_LOOKS: Final[tuple[Callable[[Path, bytes], ForeignModel | None], ...]] = (
    _paddle,
    _zip,
    _hdf5,
    _lite,
)
