"""Functions that take any bytes: they end well, or in an error of popc."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgpack

import popc
import popc_runtime
from popc.options import resolve_options
from popc_runtime.errors import PopcError, UsageError
from popc_runtime.format import STRICT_LIMITS, ArchiveFile, Codec, decode_program
from popc_runtime.format.blobs import RAW_ALIGNMENT, BlobInfo
from popc_runtime.format.digests import sha256
from popc_runtime.format.header import HEADER_SIZE, Header
from tests.format.samples import manifest_of, reseal
from tests.native.whole import HOST_CALLS

__all__ = ["TARGETS", "joined", "taken_apart"]

_TIMEOUT: Final = 0.05  # seconds of a run
_TINY: Final = {"max_imported_nodes": 200, "max_computed_bytes": 1 << 20}


def archive(data: bytes) -> None:
    """A whole archive, as it is in a file: opened, bound and run."""
    with suppress(PopcError):
        _run(data)


def sealed(data: bytes) -> None:
    """The parts of an archive, whose hashes are made to fit: opened, bound and run."""
    try:
        whole = joined(*msgpack.unpackb(data, strict_map_key=False))
    except (ValueError, TypeError, RecursionError):  # no three parts, or no manifest
        return
    archive(whole)


def program(data: bytes) -> None:
    """The program of an archive: decoded and validated."""
    with suppress(PopcError):
        decode_program(data, STRICT_LIMITS)


def options(data: bytes) -> None:
    """Options by name, as they are in a JSON file."""
    with suppress(ValueError, RecursionError):  # of JSON
        values = json.loads(data)
        if isinstance(values, dict):
            with suppress(PopcError):
                resolve_options(values=values)


def model(data: bytes) -> None:
    """An ONNX model: imported and compiled, within a small budget."""
    with suppress(PopcError):
        popc.compile(data, options=_TINY)


def _run(data: bytes) -> None:
    load = partial(popc_runtime.load, limits=STRICT_LIMITS, threads=1, timeout=_TIMEOUT)
    try:
        executable = load(data)
    except UsageError:  # it calls functions of the host
        executable = load(data, host_calls=HOST_CALLS)
    feeds = {spec.name: bytes(spec.nbytes) for spec in executable.inputs}
    executable.run_buffers(feeds, timeout=_TIMEOUT)


# -- archives by parts -----------------------------------------------------------------------------


def taken_apart(data: bytes) -> bytes:
    """An archive as `sealed` takes it: manifest, program and weights."""
    with ArchiveFile.open(data) as found:
        blobs = [bytes(found.read(name)) for name in ("program", "weights")]
    return bytes(msgpack.packb([msgpack.packb(manifest_of(data)), *blobs]))


def joined(manifest: Any, program: Any, weights: Any) -> bytes:
    """An archive of three parts, whatever they are, with hashes that fit."""
    if not all(isinstance(part, bytes) for part in (manifest, program, weights)):
        raise ValueError("parts are bytes")
    fields = msgpack.unpackb(manifest, strict_map_key=False)
    if not isinstance(fields, dict):
        raise ValueError("a manifest is a map")
    data, rows = bytearray(HEADER_SIZE), []
    for name, content in (("program", program), ("weights", weights)):
        data += bytes(-len(data) % RAW_ALIGNMENT)
        size = len(content)
        digest = sha256(content).digest()
        row = BlobInfo(name, name, Codec.RAW, len(data), size, size, digest, required=True)
        rows.append(row.to_dict())
        data += content
    data[:HEADER_SIZE] = Header(len(data), 0, 0, "popc").pack()
    return reseal(bytes(data), {**fields, "blobs": rows})


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "archive": archive,
    "sealed": sealed,
    "program": program,
    "options": options,
    "model": model,
}
