"""Entries of the cache in one file, to be carried to another machine."""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

from popc_runtime.cache.entries import (
    ENTRY,
    PROGRAM,
    CacheEntry,
    entry_folder,
    parse_entry,
    require_whole,
)
from popc_runtime.cache.store import claimed, store_entry
from popc_runtime.errors import CorruptArchiveError, ResourceError
from popc_runtime.format import ArchiveFile
from popc_runtime.ground.hints import Final
from popc_runtime.process.files import new_file, refuse_to_replace

__all__ = ["NOT_ZIP", "export_entries", "import_entries", "stored_member"]

# What `zipfile` raises where a file is damaged, or encrypted, or of a later version.
NOT_ZIP: Final = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)


def export_entries(
    folder: str, entries: Sequence[CacheEntry], target: Path, *, force: bool = False
) -> None:
    """Write entries to a ZIP file: the whole file or nothing.

    Raises:
        CorruptArchiveError: an entry is damaged.
        ResourceError: the file exists (and ``force`` is not set), or cannot be written.
    """
    refuse_to_replace(target, force=force)
    for entry in entries:
        require_whole(folder, entry)
    with new_file(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as package:
        for entry in entries:
            for name in (ENTRY, PROGRAM):
                package.write(Path(entry_folder(folder, entry.key), name), f"{entry.key}/{name}")


def import_entries(folder: str, source: Path) -> list[CacheEntry]:
    """Add the entries of a file that `export_entries` wrote, all hashes compared.

    Raises:
        CorruptArchiveError: the file is something else, or damaged; nothing is added.
        ResourceError: it cannot be read, or the cache not be written.
    """
    try:
        with zipfile.ZipFile(source) as package:
            entries = [_checked(package, name) for name in package.namelist() if _is_entry(name)]
            if not entries:
                raise _damaged(source, "it holds no entries")
            for entry in entries:
                _add(folder, package, entry)
    except OSError as error:
        raise ResourceError(f"cannot read {source}: {error.strerror or error}") from error
    except NOT_ZIP as error:
        raise _damaged(source, str(error)) from error
    return entries


def stored_member(package: zipfile.ZipFile, name: str) -> bytes:
    """A file in a ZIP file; what was compressed is none of ours, and might be a bomb.

    Raises:
        ValueError: it is compressed.
        NOT_ZIP: the file is damaged, or lacks it.
    """
    if package.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    return package.read(name)


def _is_entry(name: str) -> bool:
    return name.endswith(f"/{ENTRY}")


def _checked(package: zipfile.ZipFile, name: str) -> CacheEntry:
    """The facts of an entry, which its key and its archive agree with."""
    entry = parse_entry(stored_member(package, name), name.partition("/")[0])
    program = stored_member(package, f"{entry.key}/{PROGRAM}")
    if not program.endswith(entry.digest) or not entry.digest:
        raise CorruptArchiveError(f"the archive of {entry.key} is not the one that was exported")
    with ArchiveFile.open(program) as archive:
        archive.verify()
    return entry


def _add(folder: str, package: zipfile.ZipFile, entry: CacheEntry) -> None:
    def write(path: Path) -> None:
        with (
            package.open(f"{entry.key}/{PROGRAM}") as program,
            new_file(path) as file,
        ):
            shutil.copyfileobj(program, file)

    with claimed(folder, entry.key) as held:
        if not held:
            raise ResourceError(f"the cache {folder} cannot be written", subject=folder)
        store_entry(
            folder,
            entry.key,
            write,
            names=entry.names,
            parts=entry.parts,
            notes=entry.notes,
            extra=entry.extra,
        )


def _damaged(source: Path, why: str) -> CorruptArchiveError:
    return CorruptArchiveError(
        f"{source} holds no entries of a cache that can be used: {why}",
        subject=str(source),
        hint="`popc cache export FILE` writes such files",
    )
