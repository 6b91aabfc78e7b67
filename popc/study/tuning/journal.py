"""The trials so far, in a file: a search that was interrupted goes on where it was.

The first line says what is searched; each further line is one program that was planned.  Lines are
written as a whole and flushed, so that whatever happens, at most the last one is damaged, and that
one is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import numpy as np

from popc.frontend import LoadedModel
from popc.reporting.estimation import target_of
from popc.request import CompileRequest
from popc.study.advice import Outcome
from popc_runtime.errors import ResourceError, SpokenHint, UsageError

__all__ = ["Journal", "identity_of"]

_SCHEMA: Final = "popc.tune.journal/1"
_FIELDS: Final = {field.name: field.type for field in fields(Outcome)}


def identity_of(request: CompileRequest, loaded: LoadedModel) -> dict[str, str]:
    """The settings that results depend on, by what a user calls them."""
    values = [(row.name, str(row.value)) for row in request.options.to_manifest()]
    return {
        "version": _version(),
        "model": loaded.sha256,
        "options": _digest(values),
        "target": _digest(target_of(request.options).to_dict()),
        "shapes, dims and outputs": _digest(
            [
                {name: list(shape) for name, shape in request.shapes.items()},
                dict(request.dims),
                list(request.outputs),
            ]
        ),
        "bound inputs": _digest({name: _array(value) for name, value in request.bind.items()}),
        "training": _digest(repr(request.training)),
    }


def _version() -> str:
    try:
        return version("popc")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _array(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for name, item in value.items() for text in (name, *_array(item))]
    parts = value if isinstance(value, list | tuple) else [value]
    arrays = [np.asarray(part) for part in parts]
    return [
        f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
        for array in arrays
    ]


class Journal:
    """Outcomes by change; those that are added are written at once."""

    def __init__(self, path: Path | None, identity: Mapping[str, str]) -> None:
        """Open or begin the journal ``path``; ``None`` keeps nothing.

        Raises:
            UsageError: the file is no journal, or the journal of another search.
            ResourceError: it cannot be read or written.
        """
        self.path = path
        self.known: dict[str, Outcome] = {}
        self._file: TextIOWrapper | None = None
        if path is None:
            return
        try:
            content = path.read_bytes() if path.exists() else b""
            end = self._read(path, content, identity)
            self._file = path.open("r+" if content else "w", encoding="utf-8")
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise ResourceError(f"cannot use the journal {path}: {error.strerror}") from error
        if end == 0:
            self._write({"schema": _SCHEMA, **identity})

    def _read(self, path: Path, content: bytes, identity: Mapping[str, str]) -> int:
        """Take over what ``content`` holds; the number of bytes that are sound."""
        end = 0
        for number, line in enumerate(_whole_lines(content)):
            entry = _parse(line)
            if number == 0:
                _check_header(path, entry, identity)
            elif entry is None or not self._take(entry):
                break
            end += len(line)
        if content and not end:
            _check_header(path, None, identity)
        return end

    def _take(self, entry: Mapping[str, Any]) -> bool:
        key, outcome = entry.get("change"), entry.get("outcome")
        if not isinstance(key, str) or not isinstance(outcome, dict) or set(outcome) != {*_FIELDS}:
            return False
        self.known[key] = Outcome(**outcome)
        return True

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.known[key] = outcome
        self._write({"change": key, "outcome": asdict(outcome)})

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(entry, sort_keys=True) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ResourceError(
                f"cannot write the journal {self.path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Close the file; nothing can be added after that."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _whole_lines(content: bytes) -> Iterator[bytes]:
    return (line for line in content.splitlines(keepends=True) if line.endswith(b"\n"))


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _check_header(path: Path, entry: Mapping[str, Any] | None, identity: Mapping[str, str]) -> None:
    if entry is None or entry.get("schema") != _SCHEMA:
        raise UsageError(
            f"{path} is not a journal of popc tune",
            hint=SpokenHint(
                "a journal whose file does not exist yet is begun",
                "--resume FILE begins a new one if there is none",
            ),
        )
    different = [name for name, value in identity.items() if entry.get(name) != value]
    if different:
        raise UsageError(
            f"{path} is the journal of another search: {_listed(different)} "
            f"{'differs' if len(different) == 1 else 'differ'}",
            subject=str(path),
            hint="go on with what that search was for, or name another file",
        )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
