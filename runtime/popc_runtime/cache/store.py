"""Writing the cache: entries appear whole or not at all, and go when they are not used.

Whoever makes an entry holds the lock of its key.  What a killed process leaves behind is under
``tmp`` and is removed by the next one that holds the same lock, or by `prune`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from popc_runtime.cache.entries import (
    ENTRY,
    PROGRAM,
    CacheEntry,
    entry_folder,
    entry_keys,
    is_key,
    latest_creation,
    program_path,
    read_entry,
    require_whole,
)
from popc_runtime.cache.folder import CacheBounds
from popc_runtime.errors import ArchiveError, ResourceError
from popc_runtime.format.header import DIGEST_SIZE
from popc_runtime.format.serialization import Packable
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Final
from popc_runtime.process.file_lock import file_lock
from popc_runtime.process.files import new_file, sync_folder

__all__ = [
    "Stored",
    "add_name",
    "claimed",
    "clear",
    "prune",
    "remove_entry",
    "store_entry",
    "stored_entries",
]

_DRAWN: Final = 8  # bytes of the part of a name that is drawn by lot
_MEMORIES: Final = ("files", "requests")  # what the compiler remembers to find keys quickly


@frozen
class Stored:
    """An entry as it lies in the cache.

    Attributes:
        key: Its key.
        size: Bytes of its files.
        used: When it was used last, in seconds since 1970.
        entry: Its facts; ``None`` if it is damaged.
    """

    key: str
    size: int
    used: float
    entry: CacheEntry | None


@contextmanager
def claimed(folder: str, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold the lock of a key; yields False where the folder cannot be written."""
    with _lock_of(folder, key, on_wait) as held:
        if held:
            _sweep(Path(folder, "tmp"), f"{key}.")
        yield held


@contextmanager
def _lock_of(
    folder: str, key: str, on_wait: Callable[[], None] | None = None, *, wait: bool = True
) -> Iterator[bool]:
    locks = Path(folder, "locks")
    try:
        locks.mkdir(parents=True, exist_ok=True)
        lock = file_lock(str(locks / key), wait=wait, on_wait=on_wait)
        held = lock.__enter__()
    except OSError:
        yield False
        return
    try:
        yield held
    finally:
        lock.__exit__(None, None, None)


def store_entry(
    folder: str,
    key: str,
    write: Callable[[Path], object],
    *,
    names: tuple[str, ...],
    parts: Mapping[str, Packable],
    notes: tuple[str, ...] = (),
    extra: Mapping[str, Packable] | None = None,
) -> str:
    """Store the archive that ``write`` writes to a path; the path that it has in the cache.

    Raises:
        ResourceError: it cannot be stored; nothing is left of it.
    """
    made = _temporary(folder, key)
    try:
        made.mkdir(parents=True)
        write(made / PROGRAM)
        created = max(time.time_ns(), latest_creation(folder, names) + 1)  # clocks go back
        entry = CacheEntry(key, names, parts, _digest(made / PROGRAM), created, notes, extra or {})
        with new_file(made / ENTRY) as file:
            file.write(entry.to_bytes())
        target = Path(entry_folder(folder, key))
        target.parent.mkdir(parents=True, exist_ok=True)
        _put(made, target, folder)
    except OSError as error:
        raise _failed(folder, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return program_path(folder, key)


def add_name(folder: str, entry: CacheEntry, name: str) -> None:
    """Let an entry have one more name.

    Raises:
        ResourceError: that cannot be written.
    """
    if entry.names[-1:] != (name,):
        names = (*(other for other in entry.names if other != name), name)
        with new_file(Path(entry_folder(folder, entry.key), ENTRY)) as file:
            file.write(replace(entry, names=names).to_bytes())


def _put(made: Path, target: Path, folder: str) -> None:
    """Rename a finished entry into its place, and what was there before out of it."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        remove_entry(folder, target.name)
        made.rename(target)
    sync_folder(target.parent)


def remove_entry(folder: str, key: str) -> bool:
    """Remove an entry; False if there is none.

    Raises:
        ResourceError: it cannot be removed.
    """
    gone = _temporary(folder, key)
    try:
        gone.parent.mkdir(parents=True, exist_ok=True)
        Path(entry_folder(folder, key)).rename(gone)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _failed(folder, error) from error
    shutil.rmtree(gone, ignore_errors=True)
    return True


def stored_entries(folder: str) -> list[Stored]:
    """All entries, the one that was used last first.

    Raises:
        ResourceError: the cache cannot be read.
    """
    found = [stored for key in entry_keys(folder) if (stored := _stored(folder, key)) is not None]
    return sorted(found, key=lambda stored: (-stored.used, stored.key))


def _stored(folder: str, key: str) -> Stored | None:
    """An entry; ``None`` if it has just been removed."""
    base = Path(entry_folder(folder, key))
    try:
        size = sum(file.stat().st_size for file in base.iterdir())
        facts = base / ENTRY
        used = (facts if facts.exists() else base).stat().st_mtime
    except OSError:
        return None
    try:
        entry = read_entry(folder, key)
        if entry is not None:
            require_whole(folder, entry)
    except (ArchiveError, ResourceError):
        entry = None
    return Stored(key, size, used, entry)


def prune(
    folder: str, bounds: CacheBounds, *, keep: str = "", dry_run: bool = False
) -> list[Stored]:
    """Remove what is damaged, too old or too much, what was used longest ago first.

    Also what killed processes have left.  The entry ``keep`` stays.

    Returns what was removed, or with ``dry_run`` would be.

    Raises:
        ResourceError: the cache cannot be read or written.
    """
    oldest = time.time() - bounds.age
    if not dry_run:
        _sweep_abandoned(folder)
        _forget(folder, oldest)
    removed: list[Stored] = []
    kept = 0
    for stored in stored_entries(folder):
        fits = kept + stored.size <= bounds.size and stored.used >= oldest
        if stored.key == keep or (fits and stored.entry is not None):
            kept += stored.size
        elif dry_run or remove_entry(folder, stored.key):
            removed.append(stored)
    return removed


def clear(folder: str, *, dry_run: bool = False) -> list[Stored]:
    """Remove all entries, and everything that was remembered; what was removed.

    Raises:
        ResourceError: the cache cannot be read or written.
    """
    removed = prune(folder, CacheBounds(-1, 0), dry_run=dry_run)
    if not dry_run:
        for memory in _MEMORIES:
            shutil.rmtree(Path(folder, memory), ignore_errors=True)
    return removed


def _sweep_abandoned(folder: str) -> None:
    """Remove what is left of entries that nobody is making, and locks that nobody holds."""
    locks, unfinished = Path(folder, "locks"), Path(folder, "tmp")
    keys = {path.name.partition(".")[0] for path in (*_listed(unfinished), *_listed(locks))}
    for key in sorted(keys):
        with _lock_of(folder, key, wait=False) as held:
            if held:
                _sweep(unfinished, f"{key}.")
                with suppress(OSError):
                    (locks / key).unlink()


def _forget(folder: str, oldest: float) -> None:
    """Forget what was noted before ``oldest``."""
    for memory in _MEMORIES:
        for path in _listed(Path(folder, memory)):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _sweep(unfinished: Path, prefix: str) -> None:
    for path in _listed(unfinished):
        if path.name.startswith(prefix):
            shutil.rmtree(path, ignore_errors=True)


def _listed(folder: Path) -> list[Path]:
    """The files that the cache has put into one of its folders.

    Others may write there too: what they put in place of the folder, or beside it, stays.
    """
    with suppress(OSError):
        if not folder.is_symlink():
            return [path for path in folder.iterdir() if _is_ours(path.name)]
    return []


def _is_ours(name: str) -> bool:
    """True for a key, and for a key with what was drawn by lot behind it."""
    key, dot, drawn = name.partition(".")
    return is_key(key) and (not dot or (len(drawn) == 2 * _DRAWN and drawn.isalnum()))


def _temporary(folder: str, key: str) -> Path:
    return Path(folder, "tmp", f"{key}.{os.urandom(_DRAWN).hex()}")


def _digest(program: Path) -> bytes:
    with program.open("rb") as file:
        file.seek(-DIGEST_SIZE, os.SEEK_END)
        return file.read()


def _failed(folder: str, error: OSError) -> ResourceError:
    return ResourceError(
        f"the cache {folder} cannot be written: {error.strerror or error}",
        subject=folder,
        hint="POPC_CACHE names another folder",
    )
