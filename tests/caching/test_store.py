"""What the cache holds on the disk, whatever happens to who writes it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

import popc_runtime
from popc_runtime.cache import (
    CacheBounds,
    cache_bounds,
    cache_folder,
    claimed,
    clear,
    export_entries,
    find_entry,
    import_entries,
    key_of,
    prune,
    read_entry,
    remove_entry,
    require_whole,
    store_entry,
    stored_entries,
    touch,
)
from popc_runtime.errors import CorruptArchiveError, ResourceError, UsageError
from tests.caching.stored import ARCHIVE, BYTES, store


def _in_child(work: Callable[[], None]) -> int:
    """The wait status of a child process that does ``work``."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - pytest must not go on in the child
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


# -- the folder ------------------------------------------------------------------------------------


def test_the_folder_is_that_of_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("POPC_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == Unix("popc", appauthor=False).user_cache_dir
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Unix("popc", appauthor=False).user_cache_dir == "/elsewhere/popc"
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == MacOS("popc", appauthor=False).user_cache_dir
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == "/local/popc/Cache"
    monkeypatch.setenv("POPC_CACHE", "/mine")
    assert cache_folder() == "/mine"
    assert cache_folder("/given") == cache_folder(Path("/given")) == "/given"


@pytest.mark.parametrize(
    ("variable", "text", "bounds"),
    [
        ("MAX_SIZE", "500MB", CacheBounds(size=500_000_000)),
        ("MAX_SIZE", "1.5 gb", CacheBounds(size=1_500_000_000)),
        ("MAX_SIZE", "123", CacheBounds(size=123)),
        ("MAX_AGE", "12h", CacheBounds(age=43_200)),
        ("MAX_AGE", "2W", CacheBounds(age=1_209_600)),
        ("MAX_SIZE", "many", None),
        ("MAX_SIZE", "-1GB", None),
        ("MAX_AGE", "12", None),
        ("MAX_SIZE", "9" * 400 + "GB", None),
        ("MAX_AGE", "9" * 400 + "w", None),
        ("MAX_AGE", "d", None),
    ],
)
def test_bounds(
    variable: str, text: str, bounds: CacheBounds | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"POPC_CACHE_{variable}", text)
    if bounds is None:
        with pytest.raises(UsageError, match=f"POPC_CACHE_{variable}"):
            cache_bounds()
    else:
        assert cache_bounds() == bounds


# -- whole or not at all ---------------------------------------------------------------------------


def test_an_entry_is_whole_or_not_there_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    """The writer kills itself at its first, second, ... call to the system about files."""
    kept = 0
    for moment in range(1, 200):
        cache = tmp_path / str(moment)
        status = _in_child(lambda: _store_and_die(cache, moment))  # noqa: B023 - runs at once
        found = stored_entries(str(cache))
        assert len(found) <= 1
        for stored in found:
            assert stored.entry is not None
            popc_runtime.load(require_whole(str(cache), stored.entry)).close()
            kept += 1
        key = store(cache, 1)
        with claimed(str(cache), found[0].key if found else key) as held:
            assert held
        prune(str(cache), CacheBounds())
        assert list((cache / "tmp").iterdir()) == []
        assert len(stored_entries(str(cache))) == len(found) + 1
        if not os.WIFSIGNALED(status):
            assert status == 0
            break
    else:
        pytest.fail("the writer has never come to its end")
    assert moment > 15
    assert 0 < kept < moment


def _store_and_die(cache: Path, moment: int) -> None:
    calls = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        del arguments
        nonlocal calls
        if event == "open" or event.startswith(("os.", "shutil.")):
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    with claimed(str(cache), key_of({"number": 0})):
        store(cache)


@pytest.mark.parametrize("failing", ["fsync", "rename", "mkdir"])
def test_a_full_disk_leaves_nothing(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    owner = os if failing == "fsync" else Path
    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, fail)
        with pytest.raises(ResourceError, match="No space left"):
            store(tmp_path)
    assert stored_entries(str(tmp_path)) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_killed_process_keeps_no_lock(tmp_path: Path) -> None:
    def die() -> None:
        with claimed(str(tmp_path), "a" * 64) as held:
            assert held
            (tmp_path / "tmp" / f"{'a' * 64}.{'0' * 16}").mkdir(parents=True)
            os.kill(os.getpid(), signal.SIGKILL)

    assert os.WIFSIGNALED(_in_child(die))
    with claimed(str(tmp_path), "a" * 64) as held:
        assert held
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """Also while the file of the lock is removed by who prunes."""
    waited: list[bool] = []
    log = tmp_path / "log"

    def work() -> None:
        with claimed(str(tmp_path), "key", lambda: waited.append(True)):
            with log.open("a") as file:
                file.write("in ")
                file.flush()
                file.write("out ")
            if not waited:
                (tmp_path / "locks" / "key").unlink()

    children = []
    with claimed(str(tmp_path), "key"):
        for _ in range(3):
            child = os.fork()
            if child == 0:
                try:
                    work()
                finally:
                    os._exit(0)
            children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert log.read_text() == "in out " * 3


# -- what is kept ----------------------------------------------------------------------------------


def _age(cache: Path, key: str, seconds: int) -> None:
    os.utime(cache / "entries" / key / "entry", (seconds, seconds))


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    keys = [store(tmp_path, number) for number in range(4)]
    for number, key in enumerate(keys):
        _age(tmp_path, key, 2_000_000_000 + number)
    touch(str(tmp_path), keys[0])
    _age(tmp_path, keys[0], 2_000_000_100)
    size = stored_entries(str(tmp_path))[0].size
    expected = {keys[1], keys[2]}
    for dry_run in (True, False):
        removed = prune(str(tmp_path), CacheBounds(size=2 * size), dry_run=dry_run)
        assert {stored.key for stored in removed} == expected
    assert [stored.key for stored in stored_entries(str(tmp_path))] == [keys[0], keys[3]]
    _age(tmp_path, keys[3], 1_000_000_000)
    (removed_one,) = prune(str(tmp_path), CacheBounds(age=3600))
    assert removed_one.key == keys[3]
    assert prune(str(tmp_path), CacheBounds(size=0), keep=keys[0]) == []
    assert [stored.key for stored in clear(str(tmp_path))] == [keys[0]]
    assert not remove_entry(str(tmp_path), keys[0])


def test_damage_is_seen(tmp_path: Path) -> None:
    facts, archive, other = (store(tmp_path, number) for number in range(3))
    base = tmp_path / "entries"
    (base / facts / "entry").write_bytes(b"\x80")
    (base / archive / "program.popx").write_bytes(BYTES[:-1])
    (base / ("0" * 64)).mkdir()
    (base / ("0" * 64) / "entry").write_bytes((base / other / "entry").read_bytes())
    with pytest.raises(CorruptArchiveError, match="not what its key says"):
        read_entry(str(tmp_path), "0" * 64)
    with pytest.raises(CorruptArchiveError, match="not the one that was stored"):
        popc_runtime.load_cached(archive, cache=tmp_path)
    removed = prune(str(tmp_path), CacheBounds())
    assert {stored.key for stored in removed} == {facts, archive, "0" * 64}
    assert store(tmp_path, 1) == archive  # also over what is damaged
    (base / archive / "program.popx").write_bytes(b"")
    assert store(tmp_path, 1) == archive
    popc_runtime.load_cached(archive, cache=tmp_path)


def test_names_and_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no program") as info:
        find_entry(str(tmp_path), "net")
    assert info.value.hint == "it is empty"
    first, second = store(tmp_path, 1, "net"), store(tmp_path, 2, "other")
    assert find_entry(str(tmp_path), "net").key == first
    assert find_entry(str(tmp_path), second).key == second
    assert find_entry(str(tmp_path), second[:8]).key == second
    with pytest.raises(UsageError, match="holds no program"):
        find_entry(str(tmp_path), second[:7])
    third = store(tmp_path, 3, "net")
    with pytest.raises(UsageError, match="2 programs 'net'") as info:
        find_entry(str(tmp_path), "net")
    assert set(info.value.details) == {first, third}


def test_a_name_means_the_latest_model_and_version(tmp_path: Path) -> None:
    keys = []
    for version in ("1", "2"):
        parts: dict[str, Any] = {
            "shapes": {"x": [1]},
            "model": {"sha256": version},
            "popc": {"version": version},
        }
        keys.append(key_of(parts))
        store_entry(
            str(tmp_path),
            keys[-1],
            lambda path: path.write_bytes(BYTES),
            names=("net",),
            parts=parts,
        )
    assert find_entry(str(tmp_path), "net").key == keys[-1]


def test_the_latest_is_the_latest_although_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for version, now in (("1", 2_000), ("2", 1_000)):
        monkeypatch.setattr("time.time_ns", lambda now=now: now * 10**9)
        parts: dict[str, Any] = {"shapes": {}, "model": {"sha256": version}, "popc": {}}
        keys.append(key_of(parts))
        store_entry(
            str(tmp_path),
            keys[-1],
            lambda path: path.write_bytes(BYTES),
            names=("net",),
            parts=parts,
        )
    assert find_entry(str(tmp_path), "net").key == keys[-1]


def test_programs_travel_in_one_file(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    key = store(here, 1, "net")
    package = tmp_path / "programs.zip"
    export_entries(str(here), [find_entry(str(here), "net")], package)
    with pytest.raises(ResourceError, match="exists already"):
        export_entries(str(here), [], package)
    assert [entry.key for entry in import_entries(str(there), package)] == [key]
    assert popc_runtime.load_cached("net", cache=there).inputs == ARCHIVE.manifest.inputs
    data = package.read_bytes()
    for damaged in (data[:-30], data.replace(b"net", b"ten", 1), BYTES):
        package.write_bytes(damaged)
        with pytest.raises(CorruptArchiveError):
            import_entries(str(tmp_path / "new"), package)
    assert stored_entries(str(tmp_path / "new")) == []


def test_a_folder_that_others_own_is_read() -> None:
    """As a shared folder is by users who may not write to it."""
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name) / "shared"
        key = store(shared, 1, "net")
        for path in [Path(name), shared, *shared.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)

        def use() -> None:
            if os.geteuid() == 0:
                os.setuid(65_534)
            popc_runtime.load_cached("net", cache=shared).close()
            with claimed(str(shared), "b" * 64) as held:
                assert not held
            with pytest.raises(ResourceError, match="cannot be written"):
                store(shared, 2)
            with pytest.raises(ResourceError, match="cannot be written"):
                remove_entry(str(shared), key)

        status = _in_child(use)
        for path in [Path(name), shared, *shared.rglob("*")]:
            path.chmod(0o755)
        assert status == 0
