"""Seals of files of samples: who lacks the key cannot alter them unnoticed.

A seal is a file beside the samples, ``x.bin.seal``: a line of JSON that says what they are, and
codes (HMAC-SHA-256) over that line and over each sample with its place.  A sample is verified when
it is taken, in the memory that the program then reads.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from popc_runtime.data.streams.files import open_samples
from popc_runtime.data.streams.samples import StreamType, describe
from popc_runtime.errors import ResourceError, StreamError, UsageError
from popc_runtime.format import Array
from popc_runtime.process.paths import read_regular

__all__ = ["SealWriter", "SealedFeed", "read_key", "seal_of"]

_DIGEST: Final = "sha256"
_BYTES: Final = 32  # of a code
_LEAST_KEY: Final = 16
_MOST_KEY: Final = 4096
_MOST_SEAL: Final = 4 << 30
_FORMAT: Final = "popc.seal/1"


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key in a file: all of its bytes.

    Raises:
        ResourceError: it cannot be read.
        UsageError: it is too short, or too long.
    """
    try:
        return _checked(read_regular(path, _MOST_KEY + 1))
    except OSError as error:
        raise ResourceError(f"cannot read the key {path}: {error.strerror or error}") from error


def _checked(key: bytes) -> bytes:
    if not _LEAST_KEY <= len(key) <= _MOST_KEY:
        raise UsageError(
            f"a key has {_LEAST_KEY} to {_MOST_KEY:,} bytes, not {len(key):,}",
            hint="`head -c 32 /dev/urandom > feed.key` makes one",
        )
    return key


def seal_of(path: str | os.PathLike[str]) -> Path:
    """The path of the seal of a file."""
    return Path(f"{os.fspath(path)}.seal")


class _Codes:
    """The codes of samples of one type, under one key and id."""

    def __init__(self, key: bytes, id_: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.facts: Final[dict[str, Any]] = {
            "format": _FORMAT,
            "id": id_,
            "dtype": dtype,
            "shape": list(shape),
        }
        self._key = key
        self._samples = hmac.new(key, b"sample" + _line(self.facts), _DIGEST)

    def of_sample(self, place: int, sample: Array) -> bytes:
        """The code of the sample at a place."""
        code = self._samples.copy()
        code.update(place.to_bytes(8, "little"))
        code.update(np.ascontiguousarray(sample).astype(_stored(sample), copy=False).tobytes())
        return code.digest()

    def of_head(self, count: int) -> tuple[bytes, bytes]:
        """The line that says what there is, with its code."""
        line = _line({**self.facts, "count": count})
        return line, hmac.new(self._key, b"head" + line, _DIGEST).digest()


def _line(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode() + b"\n"


def _stored(sample: Array) -> np.dtype[Any]:
    return sample.dtype.newbyteorder("<")


class SealWriter:
    """Makes the seal of samples that are written one after the other."""

    def __init__(self, key: bytes, id_: int, dtype: str, shape: tuple[int, ...]) -> None:
        """``dtype`` is numpy's name of the element type.

        Raises:
            UsageError: the key is too short.
        """
        self._codes = _Codes(_checked(key), id_, dtype, shape)
        self._made: list[bytes] = []

    def add(self, sample: Array) -> None:
        """Seal the next sample."""
        self._made.append(self._codes.of_sample(len(self._made), sample))

    def write(self, file: BinaryIO) -> None:
        """Write the seal of all samples."""
        line, code = self._codes.of_head(len(self._made))
        file.write(line + code + b"".join(self._made))


class SealedFeed:
    """A source whose samples are verified: ``session.connect("x", SealedFeed("x.bin", key=key))``.

    As a sink it writes a .npy file and its seal, which another one verifies.

    Attributes:
        path: The file of samples, .npy or raw; its seal lies beside it, ``x.bin.seal``.
    """

    def __init__(self, path: str | os.PathLike[str], *, key: bytes, id: int = 0) -> None:  # noqa: A002
        """``key`` and ``id`` are those that the file was sealed with.

        Raises:
            UsageError: the key is too short.
        """
        self.path: Final = Path(path)
        self._key = _checked(key)
        self._id = id

    def writer(self, stream: StreamType) -> SealWriter:
        """The means to seal samples of a stream."""
        return SealWriter(self._key, self._id, stream.dtype.storage.name, stream.shape)

    def samples(self, stream: StreamType, *, repeat: bool = False) -> Iterator[Array]:
        """The samples, each verified when it is asked for; once more and again with ``repeat``.

        Raises:
            ResourceError: a file cannot be read.
            StreamError: file or seal were altered, have another key or id, or are of another type.
        """
        array = open_samples(stream, self.path)
        codes = _Codes(self._key, self._id, stream.dtype.storage.name, stream.shape)
        seal = self._read(stream, codes, len(array) if array.ndim else 0)
        return self._verified(stream, array, codes, seal, repeat=repeat)

    def _verified(
        self, stream: StreamType, array: Array, codes: _Codes, seal: bytes, *, repeat: bool
    ) -> Iterator[Array]:
        while True:
            for place, row in enumerate(array):
                sample = np.array(row)  # nobody can alter the copy behind our back
                expected = seal[place * _BYTES : (place + 1) * _BYTES]
                if not hmac.compare_digest(codes.of_sample(place, sample), expected):
                    raise self._altered(stream, f"sample {place} of {self.path} was altered")
                yield sample
            if not repeat or not len(array):
                return

    def _read(self, stream: StreamType, codes: _Codes, count: int) -> bytes:
        """The codes of the samples, if the seal is whole and made for them."""
        path = seal_of(self.path)
        try:
            data = read_regular(path, _MOST_SEAL)
        except OSError as error:
            raise ResourceError(
                f"stream {stream.name!r}: cannot read the seal {path}: {error.strerror or error}",
                hint="`popc feed write --key FILE` seals what it writes",
            ) from error
        line, code = codes.of_head(count)
        found, _, rest = data.partition(b"\n")
        if not hmac.compare_digest(rest[:_BYTES], code):
            what = describe(stream.dtype, stream.shape)
            raise self._altered(
                stream,
                f"{self.path} is not what was sealed: {count:,} x {what} with id {self._id}",
                found.decode("utf-8", "replace")[:200],
            )
        if found + b"\n" != line or len(rest) != _BYTES * (count + 1):
            raise self._altered(stream, f"the seal {path} is damaged")
        return rest[_BYTES:]

    def _altered(self, stream: StreamType, what: str, *details: str) -> StreamError:
        return StreamError(
            f"stream {stream.name!r}: {what}",
            subject=stream.name,
            hint="it was altered or cut, or sealed with another key, id or type",
            details=tuple(f"its seal says {each}" for each in details),
        )
