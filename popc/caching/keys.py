"""Everything that decides what an archive holds, as plain data: the key of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from popc.caching.builds import build_id
from popc.caching.files import file_hash
from popc.caching.plain import NotPlainError, plain
from popc.frontend import LoadedModel
from popc.frontend.filter_blocks import blocks_of_this_processor, has_blocks
from popc.requests import Requests
from popc.target import target_file
from popc_runtime.errors import UsageError
from popc_runtime.format import FORMAT_VERSION, SCHEMA_HASH, Origin
from popc_runtime.format.serialization import Packable
from popc_runtime.ground.frozen import frozen

__all__ = ["KeyParts", "compiler_parts", "key_parts"]

_ELSEWHERE = ("model", "options")


@frozen
class KeyParts:
    """The parts of a key, and the files that were read for them.

    Attributes:
        parts: By topic: model, popc, options, shapes, and what else a request fixes.
        external: SHA-256 of the model's files of external data, by their place in its folder.
        files: SHA-256 of other files that were read, by absolute path.
    """

    parts: Mapping[str, Packable]
    external: Mapping[str, bytes]
    files: Mapping[str, bytes]


def key_parts(requests: Requests, loaded: LoadedModel, folder: str) -> KeyParts:
    """The parts of the key of what is asked for; ``folder`` is the cache.

    Raises:
        ModelError: external data of the model is missing.
        ResourceError: a file cannot be read.
        UsageError: the request holds something that has no content to be compared.
    """
    request = requests.programs[0]
    external = {name: file_hash(path, folder) for name, path in loaded.external_files().items()}
    files: dict[str, bytes] = {}
    described = target_file(request.options.target)
    if described is not None:
        files[str(Path(described).absolute())] = file_hash(described, folder)
    parts: dict[str, Any] = {
        "model": {
            "sha256": loaded.sha256,
            "external": {name: digest.hex() for name, digest in external.items()},
        },
        "popc": compiler_parts(),
        "options": {
            setting.name: plain(setting.value)
            for setting in request.options.to_manifest()
            if setting.origin is not Origin.DEFAULT
        },
        "target": [digest.hex() for digest in files.values()],
    }
    for field in fields(request):
        if field.name not in _ELSEWHERE:
            parts[field.name] = _part(field.name, getattr(request, field.name))
    if has_blocks(loaded):
        parts["model"]["blocks"] = blocks_of_this_processor()
    if len(requests.programs) > 1:
        parts["programs"] = {
            str(number): {"shapes": plain(program.shapes), "dims": plain(program.dims)}
            for number, program in enumerate(requests.programs[1:], 2)
        }
    if requests.split:
        parts["split"] = plain(requests.split)
    if requests.pad:  # as one part, which says something of a dimension without values, too
        pads = [(name, sorted(values.items())) for name, values in requests.pad.items()]
        parts["pad"] = plain(pads)
    if requests.evaluate:
        parts["evaluate"] = True
    return KeyParts(parts, external, files)


def compiler_parts() -> dict[str, Packable]:
    """The facts about popc itself."""
    return {
        "version": _version(),
        "build": build_id(),
        "format": ".".join(map(str, FORMAT_VERSION)),
        "layout": SCHEMA_HASH,
    }


def _part(name: str, value: object) -> Packable:
    try:
        return plain(value)
    except NotPlainError as error:
        raise UsageError(
            f"{name} holds something that the cache cannot compare with other programs: {error}",
            hint="give numbers, text and arrays, or compile without the cache",
        ) from error


@cache
def _version() -> str:
    try:
        return version("popc")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
