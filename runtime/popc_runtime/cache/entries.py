"""The entries of the cache, as everybody reads them.

    entries/KEY/program.popx   an archive
    entries/KEY/entry          its facts; the time of the file is that of the last use
    locks/KEY                  who compiles KEY holds this lock
    tmp/KEY.*                  entries that are being written or removed

An entry is a folder that was renamed into its place, so that it is there as a whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from popc_runtime.errors import CorruptArchiveError, PopcError, ResourceError, UsageError
from popc_runtime.format.digests import sha256
from popc_runtime.format.header import DIGEST_SIZE
from popc_runtime.format.limits import DEFAULT_LIMITS
from popc_runtime.format.serialization import Packable, pack, unpack
from popc_runtime.format.sources import FileSource
from popc_runtime.ground.frozen import field, frozen, replace
from popc_runtime.ground.hints import Any, Final
from popc_runtime.process.paths import read_regular

__all__ = [
    "ENTRY",
    "MAX_ENTRY_BYTES",
    "PROGRAM",
    "CacheEntry",
    "entry_folder",
    "entry_keys",
    "find_entry",
    "is_key",
    "key_of",
    "latest_creation",
    "parse_entry",
    "program_path",
    "read_entry",
    "require_whole",
    "touch",
]

ENTRY: Final = "entry"
PROGRAM: Final = "program.popx"
_KEY_LENGTH: Final = 64  # of SHA-256 in hexadecimal
_SHORTEST_PREFIX: Final = 8  # digits of a key that users may give instead of all
_HEXADECIMAL: Final = "0123456789abcdef"
# A key names every bound array and every trained weight.
_LAST: Final = 1 << 62  # nanoseconds: in the year 2116
MAX_ENTRY_BYTES: Final = 256 << 20
_LIMITS: Final = replace(DEFAULT_LIMITS, list_items=1 << 20, text_bytes=1 << 20)


@frozen
class CacheEntry:
    """The facts of an entry.

    Attributes:
        key: SHA-256 of ``parts``.
        names: What users call it, the latest name last.
        parts: Everything that decides what the archive holds.
        digest: The last bytes of the archive, which are a hash over all that it says about itself.
        created: When it was made, in nanoseconds since 1970.
        notes: What whoever compiles should know.
        extra: What a user of the cache keeps beside the archive.
    """

    key: str
    names: tuple[str, ...]
    parts: Mapping[str, Packable]
    digest: bytes
    created: int
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Packable] = field(default_factory=dict[str, Packable])

    def to_bytes(self) -> bytes:
        """The content of the file of facts."""
        return pack(
            {
                "created": self.created,
                "digest": self.digest,
                "extra": self.extra,
                "names": self.names,
                "notes": self.notes,
                "parts": self.parts,
            }
        )

    @property
    def title(self) -> str:
        """A name, or the beginning of the key."""
        return self.names[-1] if self.names else self.key[:_SHORTEST_PREFIX]

    @property
    def request(self) -> bytes:
        """A hash over what was asked for, whatever model and version it was made of."""
        parts = {key: part for key, part in self.parts.items() if key not in ("model", "popc")}
        asked: bytes = sha256(pack(parts)).digest()
        return asked


def key_of(parts: Mapping[str, Packable]) -> str:
    """The key of an entry with these parts."""
    key: str = sha256(pack(parts)).hexdigest()
    return key


def entry_folder(folder: str, key: str) -> str:
    """The folder of an entry in the cache ``folder``."""
    return os.path.join(folder, "entries", key)


def program_path(folder: str, key: str) -> str:
    """The archive of an entry."""
    return os.path.join(entry_folder(folder, key), PROGRAM)


def entry_keys(folder: str) -> list[str]:
    """The keys of all entries, sorted.

    Raises:
        ResourceError: the folder cannot be read.
    """
    try:
        names = os.listdir(os.path.join(folder, "entries"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResourceError(f"cannot read the cache {folder}: {error.strerror}") from error
    return sorted(name for name in names if is_key(name))


def read_entry(folder: str, key: str) -> CacheEntry | None:
    """The facts of an entry; ``None`` if there is none of that key.

    Raises:
        CorruptArchiveError: it is damaged.
        ResourceError: it cannot be read.
    """
    path = os.path.join(entry_folder(folder, key), ENTRY)
    try:
        data = read_regular(path, MAX_ENTRY_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror}", subject=path) from error
    return parse_entry(data, key)


def parse_entry(data: bytes, key: str) -> CacheEntry:
    """Read what `CacheEntry.to_bytes` wrote.

    Raises:
        CorruptArchiveError: it is damaged, or belongs to another key.
    """
    fields = unpack(data, "an entry of the cache", _LIMITS)
    parts, extra = _map(fields.any("parts")), _map(fields.any("extra"))
    entry = CacheEntry(
        key,
        fields.texts("names"),
        parts,
        fields.data("digest"),
        fields.integer("created"),
        fields.texts("notes"),
        extra,
    )
    try:
        fits = key_of(parts) == key
    except (TypeError, ValueError, RecursionError):  # of maps that nobody has packed
        fits = False
    if not fits:
        raise CorruptArchiveError(f"the entry {key} of the cache is not what its key says")
    return entry


def _map(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptArchiveError("an entry of the cache is damaged")
    return value


def require_whole(folder: str, entry: CacheEntry) -> str:
    """The path of an entry's archive, which is the one that was stored.

    Raises:
        CorruptArchiveError: it is not.
        ResourceError: it cannot be read.
    """
    path = program_path(folder, entry.key)
    source = FileSource(path)
    try:
        end = source.read(max(source.size - DIGEST_SIZE, 0), min(source.size, DIGEST_SIZE))
    finally:
        source.close()
    if end != entry.digest:
        raise CorruptArchiveError(
            f"the archive {path} is not the one that was stored", subject=path
        )
    return path


def touch(folder: str, key: str) -> None:
    """Note that an entry was used, where the cache can be written."""
    with suppress(OSError):
        os.utime(os.path.join(entry_folder(folder, key), ENTRY))


def find_entry(folder: str, key_or_name: str) -> CacheEntry:
    """The entry with a name, a key, or a beginning of a key (8 digits at least).

    A name stands for the last program that was stored under it.  Where programs of one name differ
    in what was asked for, in shapes or options, the name does not tell which is meant.

    Raises:
        UsageError: there is none, or there are several.
        CorruptArchiveError, ResourceError: see `read_entry`.
    """
    if is_key(key_or_name):
        entry = read_entry(folder, key_or_name)
        if entry is not None:
            return entry
    sound = _sound_entries(folder)
    found = _latest([entry for entry in sound if key_or_name in entry.names])
    if not found and len(key_or_name) >= _SHORTEST_PREFIX:
        found = [entry for entry in sound if entry.key.startswith(key_or_name)]
    if len(found) == 1:
        return found[0]
    if not found:
        names = sorted({entry.title for entry in sound})
        raise UsageError(
            f"the cache {folder} holds no program {key_or_name!r}",
            hint=f"it holds {', '.join(names):.400}" if names else "it is empty",
        )
    raise UsageError(
        f"the cache holds {len(found)} programs {key_or_name!r}, made for different settings",
        details=tuple(entry.key for entry in found),
        hint="give a key; `popc cache list` shows what each is made for",
    )


def latest_creation(folder: str, names: tuple[str, ...]) -> int:
    """The time at which the last entry with one of these names was made; 0 if there is none."""
    alike = (entry for entry in _sound_entries(folder) if set(names) & set(entry.names))
    return max((min(entry.created, _LAST) for entry in alike), default=0)


def _sound_entries(folder: str) -> list[CacheEntry]:
    entries: list[CacheEntry] = []
    for key in entry_keys(folder):
        with suppress(PopcError):
            entry = read_entry(folder, key)
            entries += [entry] if entry is not None else []
    return entries


def _latest(entries: list[CacheEntry]) -> list[CacheEntry]:
    """The newest of entries that were asked for alike."""
    newest: dict[bytes, CacheEntry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.created, entry.key)):
        newest[entry.request] = entry
    return list(newest.values())


def is_key(text: str) -> bool:
    """True if ``text`` may be the key of an entry."""
    return len(text) == _KEY_LENGTH and not text.strip(_HEXADECIMAL)
