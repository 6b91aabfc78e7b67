"""Programs in files: those that a user saves, and those that the cache keeps."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from popc.popart.errors import popart_exception
from popc_runtime.process.files import new_file

__all__ = ["SavedProgram", "cache_key", "read_program", "write_program"]

_PROGRAM: Final = "program.popx"
_FACTS: Final = "session.json"


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A program with what a session knows of it.

    Attributes:
        key: Of the model and all settings that it was made with.
        archive: The program.
        infos: The element types and shapes of its tensors, by name.
    """

    key: str
    archive: bytes
    infos: Mapping[str, tuple[str, list[int]]]


def cache_key(parts: Iterable[bytes]) -> str:
    """A decimal number that follows from the parts, and the version of popc."""
    digest = hashlib.sha256(version("popc").encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return str(int.from_bytes(digest.digest()[:8], "little"))


def write_program(path: Path, program: SavedProgram) -> None:
    """Write a program: the whole file, or nothing.

    Raises:
        ResourceError: it cannot be written.
    """
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_FACTS, json.dumps({"key": program.key, "infos": dict(program.infos)}))
        archive.writestr(_PROGRAM, program.archive)
    with new_file(path) as file:
        file.write(data.getvalue())


def read_program(path: Path) -> SavedProgram:
    """What `write_program` wrote.

    Raises:
        popart_exception: the file holds something else, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            facts: Mapping[str, Any] = json.loads(archive.read(_FACTS))
            infos = {name: (info[0], list(info[1])) for name, info in facts["infos"].items()}
            return SavedProgram(str(facts["key"]), archive.read(_PROGRAM), infos)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise popart_exception(f"The file {path} does not contain a program: {error}") from error
