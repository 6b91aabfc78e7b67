"""Sealed feeds: whatever is altered is refused, with the name of the stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import popc
import popc_runtime
from popc.inputs.arrays import FeedKey
from popc.inputs.feeds import write_feed
from popc_runtime import SealedFeed
from popc_runtime.data.streams.seals import read_key
from popc_runtime.errors import ResourceError, StreamError, UsageError
from popc_runtime.format import Array, StreamDirection
from tests.support.models import affine, expected_affine

_KEY: Final = bytes(range(32))
_SAMPLES: Final = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)


def _sealed(folder: Path, suffix: str = ".bin") -> Path:
    path = folder / f"x{suffix}"
    write_feed(_SAMPLES, path, seal=FeedKey(_KEY, 7))
    return path


def _run(feed: SealedFeed, steps: int = 5, *, repeat: bool = False) -> list[Array]:
    results: list[Array] = []
    with popc_runtime.load(popc.compile(affine())).session() as session:
        session.connect("x", feed, repeat=repeat).connect("y", results)
        session.step(steps)
    return results


@pytest.mark.parametrize("suffix", [".bin", ".npy"])
def test_what_is_whole_is_read(suffix: str, tmp_path: Path) -> None:
    feed = SealedFeed(_sealed(tmp_path, suffix), key=_KEY, id=7)
    found = _run(feed, 7, repeat=True)
    for place, result in enumerate(found):
        assert result == expected_affine(_SAMPLES[place % 5])


def _flip(place: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[place] ^= 1

    return change


def _swap(data: bytearray) -> None:
    data[:24], data[24:48] = data[24:48], data[:24]


def _cut(data: bytearray) -> None:
    del data[-24:]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x.bin", _flip(100), "stream 'x': sample 4 of .* was altered"),
        ("x.bin", _flip(0), "stream 'x': sample 0 of .* was altered"),
        ("x.bin", _swap, "stream 'x': sample 0 of .* was altered"),
        ("x.bin", _cut, "stream 'x': .* is not what was sealed"),
        ("x.bin.seal", _flip(0), "stream 'x': the seal .* is damaged"),
        ("x.bin.seal", _flip(-1), "stream 'x': sample 4 of .* was altered"),
        ("x.bin.seal", _cut, "stream 'x': the seal .* is damaged"),
        ("x.bin.seal", bytearray.clear, "stream 'x': .* is not what was sealed"),
    ],
)
def test_what_is_altered_is_refused(
    name: str, change: Callable[[bytearray], None], message: str, tmp_path: Path
) -> None:
    path = _sealed(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    change(data)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StreamError, match=message) as caught:
        _run(SealedFeed(path, key=_KEY, id=7))
    assert caught.value.subject == "x"


@pytest.mark.parametrize(("key", "number"), [(_KEY[::-1], 7), (_KEY, 8)])
def test_another_key_or_id_is_refused(key: bytes, number: int, tmp_path: Path) -> None:
    path = _sealed(tmp_path)
    with pytest.raises(StreamError, match="is not what was sealed"):
        _run(SealedFeed(path, key=key, id=number))


def test_a_feed_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_feed(_SAMPLES.astype(np.float64), path, seal=FeedKey(_KEY))
    with pytest.raises(StreamError, match="is not what was sealed"):
        _run(SealedFeed(path, key=_KEY))


def test_keys_and_seals_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "short.key").write_bytes(b"short")
    with pytest.raises(UsageError, match="16 to 4,096 bytes, not 5"):
        read_key(tmp_path / "short.key")
    with pytest.raises(ResourceError, match="cannot read the key"):
        read_key(tmp_path / "nowhere.key")
    _SAMPLES.tofile(tmp_path / "x.bin")
    with pytest.raises(ResourceError, match="stream 'x': cannot read the seal"):
        _run(SealedFeed(tmp_path / "x.bin", key=_KEY))


def test_what_a_session_returns_is_sealed(tmp_path: Path) -> None:
    """Another program that reads it verifies it, and refuses what was altered."""
    sealed = SealedFeed(tmp_path / "y.npy", key=_KEY, id=3)
    program = popc_runtime.load(popc.compile(affine()))
    with program.session() as session:
        session.connect("x", _SAMPLES).connect("y", sealed)
        session.step(5)
    stream = program.stream("y", StreamDirection.OUTPUT)
    found = [*sealed.samples(stream)]
    for sample, x in zip(found, _SAMPLES, strict=True):
        assert sample == expected_affine(x)
    data = bytearray(sealed.path.read_bytes())
    data[-1] ^= 1
    sealed.path.write_bytes(data)
    with pytest.raises(StreamError, match=r"stream 'y': sample 4 of .* was altered"):
        [*sealed.samples(stream)]
