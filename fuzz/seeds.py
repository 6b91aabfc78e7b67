"""The corpus: what targets begin with, as one small file for each of them.

python -m fuzz.seeds writes fuzz/corpus/TARGET.tar.zst anew, from what tests are made of.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import zstandard

from fuzz.targets import taken_apart
from popc_runtime.format import ArchiveFile
from popc_runtime.native import find_library
from tests.native.recorded import HEAD, Sample, packed_samples, samples, shared_samples
from tests.native.whole import archives
from tests.options.settings import SETTINGS
from tools.campaigns.random_models.generation import random_recipe

__all__ = ["main"]

_FOLDER: Final = Path(__file__).parent / "corpus"
_DAY: Final = 0  # the time of every member: the same seeds give the same bytes
_MODELS: Final = 60
_RECORDS: Final = 12  # of a kernel
_MOST: Final = 255  # bytes of a tensor's contents that a seed has


def main() -> None:
    """Write the corpus."""
    _FOLDER.mkdir(exist_ok=True)
    for name, make in _SEEDS.items():
        listed = sorted(set(make()))
        (_FOLDER / f"{name}.tar.zst").write_bytes(_packed(listed))
        print(f"{name}: {len(listed)} seeds, {sum(map(len, listed)):,} bytes")


def _packed(listed: list[bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number, seed in enumerate(listed):
            member = tarfile.TarInfo(f"{number:04}")
            member.size, member.mtime = len(seed), _DAY
            archive.addfile(member, io.BytesIO(seed))
    return zstandard.ZstdCompressor(level=19).compress(file.getvalue())


def _archives() -> Iterator[bytes]:
    yield from archives().values()


def _sealed() -> Iterator[bytes]:
    for archive in archives().values():
        yield taken_apart(archive)


def _programs() -> Iterator[bytes]:
    for archive in archives().values():
        with ArchiveFile.open(archive) as found:
            yield bytes(found.read("program"))


def _options() -> Iterator[bytes]:
    for setting in SETTINGS:
        yield json.dumps({**setting.needs, **setting.options}, default=str).encode()


def _models() -> Iterator[bytes]:
    for seed in range(_MODELS):
        recipe, values = random_recipe(seed)
        yield recipe.model(values).SerializeToString()


# -- records ---------------------------------------------------------------------------------------


def _kernels() -> Iterator[bytes]:
    library = find_library("x86-64-v3")
    assert library is not None, "records are those of the kernels for x86-64-v3"
    kinds = samples(library, _RECORDS, by_choices=True)
    for found in (kinds, packed_samples(library), shared_samples(library)):
        for listed in found.values():
            yield from map(_record, islice(listed, _RECORDS))


def _record(sample: Sample) -> bytes:
    """A record as fuzz/native/kernels.c reads it."""
    parts, at = [struct.pack("<I", _hash(sample.kernel))], 0
    tensors = {tensor.place: tensor for tensor in sample.tensors}
    while at < len(sample.words):
        tensor = tensors.get(at)
        if tensor is None:
            word = sample.words[at]
            small = -128 <= word < 128
            parts.append(struct.pack("<Bb" if small else "<Bq", 0 if small else 1, word))
            at += 1
            continue
        contents = tensor.contents[:_MOST]
        head = (2, tensor.dtype, tensor.constant, tensor.rank)
        sizes = (*(dim & 0xFFFF for dim in tensor.shape), *tensor.strides, len(contents))
        format_ = f"<4B{tensor.rank}H{tensor.rank}iB"
        parts += [struct.pack(format_, *head, *sizes), contents]
        at += HEAD + 2 * tensor.rank
    return b"".join(parts)


def _hash(text: str) -> int:
    """FNV-1a; fuzz/native/reader.h computes the same."""
    value = 2166136261
    for letter in text.encode():
        value = (value ^ letter) * 16777619 & 0xFFFFFFFF
    return value


def _blocks() -> Iterator[bytes]:
    """Scalars, then words of a loop around a branch, as fuzz/native/programs.c reads them."""
    record = bytes([64, 66, 64 + 16, 64 + 32])
    branch = bytes([64 - 3, 64 + 2 + len(record), 1, 64 + len(record)]) + record
    for count in (0, 3, 64 + 3):
        loop = bytes([64 - 2, 64 + 4 + len(branch), count, 64, 64, 2]) + branch
        yield bytes([3, 1, 0, 0, 0, 0, 0, 0]) + record + loop + record
    yield bytes(8) + bytes([64 - 1, 65, 65, 64 - 1, 65, 67])


_SEEDS: Final = {
    "archive": _archives,
    "sealed": _sealed,
    "program": _programs,
    "options": _options,
    "model": _models,
    "kernels": _kernels,
    "programs": _blocks,
}

if __name__ == "__main__":
    main()
