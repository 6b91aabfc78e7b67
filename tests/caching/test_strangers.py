"""Folders of a cache into which others have put what they like."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import msgpack
import pytest

import popc_runtime
from popc_runtime.cache import (
    CacheBounds,
    clear,
    find_entry,
    import_entries,
    prune,
    read_entry,
)
from popc_runtime.errors import CorruptArchiveError, ResourceError
from tests.caching.stored import store


def test_packages_that_were_compressed_are_refused(tmp_path: Path) -> None:
    """They may hold any number of zeros."""
    package = tmp_path / "programs.zip"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(f"{'0' * 64}/entry", bytes(1 << 20))
    with pytest.raises(CorruptArchiveError, match="entry is compressed"):
        import_entries(str(tmp_path / "new"), package)


_NESTED: list[Any] = []
for _ in range(400):
    _NESTED = [_NESTED]


@pytest.mark.parametrize(
    "parts", [{"a": 1, b"b": 2}, {"a": _NESTED}, {}], ids=["mixed", "nested", "other"]
)
def test_facts_that_nobody_packed_are_damage(tmp_path: Path, parts: dict[Any, Any]) -> None:
    key = store(tmp_path, 1, "net")
    entry = tmp_path / "entries" / key / "entry"
    entry.write_bytes(msgpack.packb(msgpack.unpackb(entry.read_bytes()) | {"parts": parts}))
    with pytest.raises(CorruptArchiveError, match=r"not what its key says|cannot be read"):
        read_entry(str(tmp_path), key)
    other = store(tmp_path, 2, "net")
    assert find_entry(str(tmp_path), "net").key == other


def test_an_entry_of_the_last_moment_is_followed_by_others(tmp_path: Path) -> None:
    key = store(tmp_path, 1, "net")
    entry = tmp_path / "entries" / key / "entry"
    entry.write_bytes(msgpack.packb(msgpack.unpackb(entry.read_bytes()) | {"created": 2**63 - 1}))
    later = store(tmp_path, 2, "net")
    assert read_entry(str(tmp_path), later) is not None


@pytest.mark.parametrize("what", ["pipe", "device", "huge"])
@pytest.mark.parametrize("name", ["entry", "program.popx"])
def test_entries_that_have_no_end_are_damage(tmp_path: Path, name: str, what: str) -> None:
    key = store(tmp_path, 1)
    path = tmp_path / "entries" / key / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises((ResourceError, CorruptArchiveError)):
        popc_runtime.load_cached(key, cache=tmp_path)
    assert [stored.key for stored in prune(str(tmp_path), CacheBounds(size=1 << 50))] == [key]
    assert store(tmp_path, 1) == key


@pytest.mark.parametrize("name", ["tmp", "locks", "files", "requests"])
@pytest.mark.parametrize("how", ["a link", "a file of another name"])
def test_nothing_of_others_is_removed(tmp_path: Path, name: str, how: str) -> None:
    """Whoever may write to a shared folder cannot make its other users remove their files."""
    cache, documents = tmp_path / "cache", tmp_path / "documents"
    documents.mkdir()
    store(cache)
    kept = documents / ("0" * 64 if how == "a link" else "letter.txt")
    kept.write_text("dear")
    os.utime(kept, (0, 0))
    if how == "a link":
        shutil.rmtree(cache / name, ignore_errors=True)
        (cache / name).symlink_to(documents)
    else:
        (cache / name).mkdir(exist_ok=True)
        kept = kept.rename(cache / name / kept.name)
    prune(str(cache), CacheBounds(age=1))
    assert kept.exists()
    if how == "a link":
        clear(str(cache))
        assert kept.exists()
