"""Whole archives that are damaged: by accident, or so that all hashes fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from random import Random
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np

import popc_runtime
from popc_runtime import Executable
from popc_runtime.format import ArchiveFile, Array, BlobInfo, Codec, Limits
from popc_runtime.format.blobs import RAW_ALIGNMENT
from popc_runtime.format.header import HEADER_SIZE, Header
from tests.format.samples import change, manifest_of, reseal
from tests.native.hostile import Trial
from tests.native.whole import HOST_CALLS, archives

__all__ = ["damaged", "host_calls_of", "parts_of", "trials"]

_LIMITS: Final = Limits(memory_bytes=1 << 28, blob_bytes=1 << 28, total_bytes=1 << 28)
_EXTREMES: Final = (
    *(-(1 << 63), -(1 << 40), -65, -1, 0, 1, 2, 3, 7, 64, 1000),
    *(1 << 20, 1 << 31, 1 << 40, 1 << 48, 1 << 62, (1 << 63) - 1),
)
_FLOATS: Final = (0.0, -1.0, 1e300, float("inf"), float("-inf"), float("nan"))
_ENGINES: Final = ("native", "native", "numpy")
# Where these are, a program may say that it takes forever.
_LONG: Final = ("blocks", "training")


def trials(count: int, seed: int = 0) -> Iterator[Trial]:
    """``count`` of each archive, beside it as it is, and taken apart and joined."""
    for name, archive in archives().items():
        parts = _parts(name)
        for whole in (archive, parts.joined(**parts.contents)):
            for engine in sorted(set(_ENGINES)):
                label = f"{name} by {engine}, as it is"
                yield Trial(label, partial(_load, name, whole, engine), is_right=True)
        for number in range(count):
            random = Random(f"{name} {seed} {number}")
            engine = random.choice(_ENGINES)
            changed, change_of = damaged(name, random)
            label = f"{name} by {engine}, seed {seed}, number {number}: {change_of}"
            yield Trial(label, partial(_load, name, changed, engine), may_be_long=name in _LONG)


def _load(name: str, archive: bytes, engine: str) -> Executable:
    return popc_runtime.load(
        archive, threads=2, engine=engine, limits=_LIMITS, host_calls=host_calls_of(name)
    )


def host_calls_of(name: str) -> Mapping[str, Callable[[Array], Array]]:
    """The functions that one of `archives` calls on the host."""
    return HOST_CALLS if name == "host" else {}


def damaged(name: str, random: Random) -> tuple[bytes, str]:
    """One of `archives` in which something is not what it was, and what that is."""
    return random.choice(_WAYS)(name, random)


# -- by accident -----------------------------------------------------------------------------------


def _flipped(name: str, random: Random) -> tuple[bytes, str]:
    data = bytearray(archives()[name])
    bits = [random.randrange(8 * len(data)) for _ in range(random.randint(1, 3))]
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data), f"bits {bits}"


def _cut(name: str, random: Random) -> tuple[bytes, str]:
    data = archives()[name]
    size = random.randrange(len(data))
    return data[:size], f"its first {size} bytes"


def _moved(name: str, random: Random) -> tuple[bytes, str]:
    data = archives()[name]
    first, second, third = sorted(random.choices(range(len(data)), k=3))
    moved = data[:first] + data[second:third] + data[first:second] + data[third:]
    return moved, f"bytes {first} to {second} behind those to {third}"


# -- by somebody who computes hashes ---------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    manifest: dict[str, Any]
    kinds: dict[str, str]
    contents: dict[str, bytes]

    def joined(self, **contents: bytes) -> bytes:
        """An archive with other ``contents``, none of them compressed."""
        data, rows = bytearray(HEADER_SIZE), []
        for name, content in contents.items():
            data += bytes(-len(data) % RAW_ALIGNMENT)
            digest = sha256(content).digest()
            size = len(content)
            kind = self.kinds[name]
            row = BlobInfo(name, kind, Codec.RAW, len(data), size, size, digest, required=True)
            rows.append(row)
            data += content
        data[:HEADER_SIZE] = Header(len(data), 0, 0, "popc").pack()
        return reseal(bytes(data), {**self.manifest, "blobs": [row.to_dict() for row in rows]})


@cache
def _parts(name: str) -> _Parts:
    return parts_of(archives()[name])


def parts_of(data: bytes) -> _Parts:
    """An archive taken apart."""
    archive = ArchiveFile.open(data)
    kinds = {key: info.kind for key, info in archive.blobs.items()}
    return _Parts(manifest_of(data), kinds, {key: archive.read(key) for key in kinds})


def _weights(name: str, random: Random) -> tuple[bytes, str]:
    """Numbers that nobody expects: among them are indices, sizes and quantities of repetitions."""
    parts = _parts(name)
    words = bytearray(parts.contents["weights"])
    written = []
    for _ in range(random.randint(1, 8)):
        value = random.choice((*_EXTREMES, *_FLOATS))
        word = np.array(value, "<f8" if isinstance(value, float) else "<i8").tobytes()
        place = random.randrange(0, max(len(words) - 8, 1), 4)
        words[place : place + 8] = word
        written.append(f"{value} at {place}")
    contents = {**parts.contents, "weights": bytes(words)}
    return parts.joined(**contents), f"weights: {', '.join(written)}"


def _columns(name: str, random: Random) -> tuple[bytes, str]:
    """One or two numbers of the program."""
    parts = _parts(name)
    program: dict[str, Any] = msgpack.unpackb(parts.contents["program"])
    labels = []
    for _ in range(random.choice((1, 1, 2))):
        column = random.choice([key for key, value in program.items() if _is_column(value)])
        label = _change_column(program, column, random)
        labels.append(label)
    contents = {**parts.contents, "program": msgpack.packb(program)}
    return parts.joined(**contents), f"program: {', '.join(labels)}"


def _is_column(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], bytes)


def _change_column(program: dict[str, Any], column: str, random: Random) -> str:
    code, data = program[column]
    values: list[int] = np.frombuffer(data, f"<{code}").astype(np.int64).tolist()
    if not values or random.random() < 0.1:
        values.insert(random.randint(0, len(values)), random.choice(_EXTREMES))
        label = f"{column} has another entry"
    elif random.random() < 0.1:
        del values[random.randrange(len(values))]
        label = f"{column} lacks an entry"
    else:
        place = random.randrange(len(values))
        old = values[place]
        near = (max(old, 1 - (1 << 62)) - 1, min(old, 1 << 62) + 1, *random.choices(values, k=4))
        values[place] = random.choice((*near, random.choice(_EXTREMES)))
        label = f"{column}[{place}] is {values[place]} in place of {old}"
    column_data: Array = np.array(values, "<i8")
    program[column] = ["i8", column_data.tobytes()]
    return label


def _memory(name: str, random: Random) -> tuple[bytes, str]:
    """The sizes of regions, or the text of all strings."""
    parts = _parts(name)
    program: dict[str, Any] = msgpack.unpackb(parts.contents["program"])
    sizes: list[int] = program["memory"]
    place = random.randrange(len(sizes))
    sizes[place] = random.choice((*_EXTREMES, sizes[place] - 64, sizes[place] + 64))
    contents = {**parts.contents, "program": msgpack.packb(program)}
    return parts.joined(**contents), f"region {place} has {sizes[place]} bytes"


def _sections(name: str, random: Random) -> tuple[bytes, str]:
    """Blobs have the contents of each other, or of another archive, or are not there."""
    parts = _parts(name)
    contents = dict(parts.contents)
    one = random.choice(sorted(contents))
    kind = random.randrange(3)
    if kind == 0:
        del contents[one]
        return parts.joined(**contents), f"no {one}"
    if kind == 1:
        other = random.choice(sorted(contents))
        contents[one], contents[other] = contents[other], contents[one]
        return parts.joined(**contents), f"{one} and {other} exchanged"
    donor = random.choice(sorted(archives()))
    contents[one] = _parts(donor).contents.get(one, b"")
    return parts.joined(**contents), f"{one} of {donor}"


def _manifest(name: str, random: Random) -> tuple[bytes, str]:
    """A field of the manifest, somewhere in it."""
    manifest, paths = _parts(name).manifest, _manifest_paths(name)
    path = random.choice(paths)
    junk: list[Any] = [None, True, "", "x", b"", [], {}, *_EXTREMES, *_FLOATS]
    value = random.choice([random.choice(junk), _at(manifest, random.choice(paths))])
    forged = change(manifest, path, lambda _: value)
    label = f"manifest {'.'.join(map(str, path))} is {value!r:.60} in place of "
    return reseal(archives()[name], forged), label + f"{_at(manifest, path)!r:.60}"


@cache
def _manifest_paths(name: str) -> list[tuple[Any, ...]]:
    """All places in the manifest of one of `archives`."""
    return [path for path in _paths(_parts(name).manifest) if path]


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield from _paths(item, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


_Way: TypeAlias = Callable[[str, Random], tuple[bytes, str]]
_WAYS: Final[tuple[_Way, ...]] = (
    *(_flipped, _cut, _moved),
    *(_weights, _columns, _columns, _columns, _columns, _memory, _sections, _manifest, _manifest),
)
