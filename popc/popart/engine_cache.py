"""Programs in files: those that a user saves, and those that the cache of popc keeps."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import onnx

from popc.caching.files import file_hash
from popc.frontend import LoadedModel, nested_graphs
from popc.popart.device_info import DeviceInfo
from popc.popart.enums import DeviceType
from popc.popart.errors import popart_exception
from popc.popart.logger import log
from popc.popart.options import SessionOptions
from popc_runtime.cache import (
    NOT_ZIP,
    cache_bounds,
    cache_folder,
    program_path,
    prune,
    read_entry,
    store_entry,
    stored_member,
    touch,
)
from popc_runtime.errors import ArchiveError, CorruptArchiveError, ResourceError
from popc_runtime.format.serialization import Packable
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.files import new_file

__all__ = [
    "SavedProgram",
    "find_program",
    "folder_of",
    "keep_program",
    "model_parts",
    "read_program",
    "write_program",
]

_DEBUG_ID: Final = "__debug_info_id"
_DEBUG_IDS: Final = "__debug_id/"
_PROGRAM: Final = "program.popx"
_FACTS: Final = "session.json"


@frozen
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


def folder_of(options: SessionOptions, device: DeviceInfo) -> str:
    """The folder of the cache that a session uses; "" if it uses none."""
    hardware = (DeviceType.Ipu, DeviceType.OfflineIpu)
    if not options.enableEngineCaching or not options.cachePath or device.type not in hardware:
        return ""
    return cache_folder(options.cachePath)


def model_parts(loaded: LoadedModel, model: onnx.ModelProto) -> dict[str, Packable]:
    """The content of a session's model, for the key of its program.

    Raises:
        ModelError: external data is missing.
    """
    files = loaded.external_files()
    return {
        "sha256": _hash_of(model),
        "external": {name: file_hash(path, "") for name, path in files.items()},
    }


def _hash_of(model: onnx.ModelProto) -> str:
    """A hash of a model, without what counts the builders of a process, and their calls."""
    sketch = onnx.ModelProto()
    sketch.opset_import.extend(model.opset_import)
    sketch.metadata_props.extend(
        entry for entry in model.metadata_props if not entry.key.startswith(_DEBUG_IDS)
    )
    sketch.functions.extend(model.functions)
    graph = model.graph
    sketch.graph.node.extend(graph.node)
    for field in (graph.input, graph.output, graph.value_info):
        sketch.graph.output.extend(field)
    _forget_counts(sketch.graph)
    found = hashlib.sha256(sketch.SerializeToString(deterministic=True))
    for weight in (*graph.initializer, *graph.sparse_initializer):
        found.update(weight.SerializeToString(deterministic=True))
    return found.hexdigest()


def _forget_counts(graph: onnx.GraphProto) -> None:
    graph.name = ""
    for node in graph.node:
        for place, entry in enumerate(node.attribute):
            if entry.name == _DEBUG_ID:
                del node.attribute[place]
                break
        for nested in nested_graphs(node):
            _forget_counts(nested)


def find_program(folder: str, key: str) -> SavedProgram | None:
    """The program that the cache in ``folder`` has for a key; ``None`` if it has none."""
    try:
        entry = read_entry(folder, key)
        if entry is None:
            return None
        path = program_path(folder, key)
        data = Path(path).read_bytes()
        if hashlib.sha256(data).hexdigest() != entry.extra.get("sha256"):
            raise CorruptArchiveError(f"the archive {path} is not the one that was stored")
        program = SavedProgram(key, data, _infos(entry.extra.get("infos")))
    except (ArchiveError, ResourceError, OSError, ValueError) as error:
        log("session", "WARN", f"Compiling again: {error}")
        return None
    log("session", "INFO", f"Using the cached program {path}")
    touch(folder, key)
    return program


def _infos(stored: Any) -> dict[str, tuple[str, list[int]]]:
    """Element types and shapes, as files have them.

    Raises:
        ValueError: something else is there.
    """
    try:
        found = {str(name): (kind, list(shape)) for name, (kind, shape) in stored.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"what is known of its tensors is damaged: {error}") from error
    for kind, shape in found.values():
        if not isinstance(kind, str) or not all(type(dim) is int for dim in shape):
            raise ValueError("what is known of its tensors is damaged")
    return found


def keep_program(folder: str, program: SavedProgram, parts: Mapping[str, Packable]) -> None:
    """Put a program into the cache in ``folder``, if that can be written; "" if it cannot.

    ``parts`` is what the key of the program is made of.
    """

    def write(path: Path) -> None:
        with new_file(path) as file:
            file.write(program.archive)

    infos = {name: (kind, tuple(shape)) for name, (kind, shape) in program.infos.items()}
    if not folder:
        log("session", "WARN", "The program is not kept: the cache cannot be written")
        return
    try:
        extra: dict[str, Packable] = {
            "infos": infos,
            "sha256": hashlib.sha256(program.archive).hexdigest(),
        }
        store_entry(folder, program.key, write, names=(), parts=parts, extra=extra)
        prune(folder, cache_bounds(), keep=program.key)
    except ResourceError as error:
        log("session", "WARN", f"The program is not kept: {error.message}")


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
    """Read what `write_program` wrote.

    Raises:
        popart_exception: the file holds something else, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            facts: Any = json.loads(stored_member(archive, _FACTS))
            if not isinstance(facts, dict):
                raise ValueError(f"{_FACTS} is no object")
            program = stored_member(archive, _PROGRAM)
            return SavedProgram(str(facts["key"]), program, _infos(facts["infos"]))
    except (OSError, *NOT_ZIP) as error:
        raise popart_exception(f"The file {path} does not contain a program: {error}") from error
