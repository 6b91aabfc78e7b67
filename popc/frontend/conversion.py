"""Converting models of other frameworks, in a process of the interpreter that has the framework.

The ONNX model is kept, and says in its metadata what it was made of: a model that has not changed
is not converted again.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc.frontend.hosts import ForeignModel
from popc.printable import printable
from popc.progress import UNWATCHED, Stage, Watch
from popc_runtime.errors import ModelError, OptionError, ResourceError, UsageError
from popc_runtime.ground.frozen import frozen

__all__ = ["NO_CONVERTER", "Converter"]

_SCRIPT: Final = Path(__file__).with_name("converter_script.py")
_SOURCE: Final = "popc.converted_from"  # the key of the hash of what a model was made of
_BY: Final = "popc.converted_by"
_LAST_LINES: Final = 12
_WIDTH: Final = 70  # of what progress shows of a line


@frozen
class Converter:
    """The way to an ONNX model from one of another framework.

    Attributes:
        python: The interpreter that has framework and converter; "" for none.
        folder: Where ONNX models are kept; "" for beside the model.
        watch: Told of the progress.
    """

    python: str = ""
    folder: str = ""
    watch: Watch = UNWATCHED

    def convert(self, model: ForeignModel) -> Path:
        """The ONNX model made of ``model``, or the one that was made of it before.

        Raises:
            ModelError: nothing converts it, or the converter fails.
            OptionError: the interpreter cannot be run.
            ResourceError: a file cannot be read or written.
            UsageError: another model is where the result is to be.
        """
        if not (self.python and model.kind):
            raise ModelError(
                f"{model.path} is {model.what}, not an ONNX model",
                subject=str(model.path),
                hint=model.hint,
            )
        result = Path(self.folder or model.path.absolute().parent) / model.name
        try:
            digest = _digest(model)
            if not _is_made_of(result, digest):
                self._make(model, result, digest)
        except OSError as error:
            raise ResourceError(
                f"cannot convert {model.path} to {result}: {error.strerror}", subject=str(result)
            ) from error
        return result

    def _make(self, model: ForeignModel, result: Path, digest: str) -> None:
        from tempfile import TemporaryDirectory  # slow to import

        result.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.watch.stage(Stage.CONVERT) as made,
            TemporaryDirectory(prefix=f".{result.stem}.", dir=result.parent) as folder,
        ):
            draft = Path(folder) / result.name
            lines = self._run(model, draft)
            _mark(draft, digest, lines)
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            # What holds weights beside the model comes first, the model itself last.
            for file in sorted(Path(folder).iterdir(), key=lambda each: each == draft):
                file.replace(result.parent / file.name)
            made(f"{model.what} -> {result} ({size:,} bytes)", lambda: "\n".join(lines))

    def _run(self, model: ForeignModel, draft: Path) -> deque[str]:
        """The last lines of the converter, which has written ``draft``."""
        import subprocess

        program, target = (os.path.abspath(path) for path in (model.program, draft))  # noqa: PTH100
        command = [self.python, "-I", "-u", str(_SCRIPT), model.kind, program, target]
        try:
            process = subprocess.Popen(  # noqa: S603 - what the user names
                command,
                cwd=draft.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise OptionError(
                f"converter_python is {self.python}, which cannot be run: {error.strerror}",
                subject="converter_python",
                hint=f"{model.hint}",
            ) from error
        with process:
            try:
                lines = _listen(process.stdout, self.watch.speaker(Stage.CONVERT))
            except BaseException:
                process.kill()
                raise
        if process.returncode or not draft.is_file():
            raise self._failed(model, lines, process.returncode)
        return lines

    def _failed(self, model: ForeignModel, lines: deque[str], code: int) -> ModelError:
        lacks = any("No module named" in line for line in lines)
        install = f"`{model.installation(self.python)}`"
        return ModelError(
            f"{model.path} is {model.what}, and its converter failed "
            + (f"with exit status {code}" if code else "to write a model"),
            subject=str(model.path),
            details=tuple(lines),
            hint=f"install what it lacks: {install}"
            if lacks
            else "export the model from Python with its framework, and compile the ONNX file",
        )


NO_CONVERTER: Final = Converter()


def _listen(output: IO[str] | None, tell: Callable[[str], None]) -> deque[str]:
    """Pass lines on until the converter has ended; the last of them."""
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    for line in output or ():
        text = printable(line.strip())
        if text:
            lines.append(text)
            tell(text[:_WIDTH])
    return lines


def _digest(model: ForeignModel) -> str:
    """SHA-256 over names and content of all files of a model."""
    from hashlib import file_digest, sha256

    root = model.program if model.program.is_dir() else model.program.parent
    whole = sha256()
    for path in model.files:
        with path.open("rb") as file:
            content = file_digest(file, "sha256").hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()}\n{content}\n".encode())
    return whole.hexdigest()


def _is_made_of(result: Path, digest: str) -> bool:
    """True if the ONNX model exists and was made of what has this hash.

    Raises:
        UsageError: it exists, and no conversion has made it.
    """
    if not result.exists():
        return False
    found = ""
    with suppress(DecodeError, IsADirectoryError):
        model = onnx.ModelProto.FromString(result.read_bytes())
        found = next((item.value for item in model.metadata_props if item.key == _SOURCE), "")
    if not found:
        raise UsageError(
            f"{result} exists, and was not converted by popc: it would be replaced",
            hint="compile it instead, move it away, or name another folder with onnx_folder",
        )
    return found == digest


def _mark(path: Path, digest: str, lines: deque[str]) -> None:
    """Note in a model what it was made of, and by what: messages one after the other are one."""
    note = onnx.ModelProto()
    note.metadata_props.add(key=_SOURCE, value=digest)
    with suppress(ValueError, IndexError, AttributeError):
        versions = json.loads(lines[-1])
        by = ", ".join(f"{name} {version}" for name, version in versions.items())
        note.metadata_props.add(key=_BY, value=by)
    with path.open("ab") as file:
        file.write(note.SerializeToString())
