"""Why the cache does not hold what is asked for: what differs from the entry that is nearest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from popc.caching.keys import key_parts
from popc.reporting.estimation import check_target
from popc.requests import Requests
from popc_runtime.cache import CacheEntry, key_of, stored_entries
from popc_runtime.ground.frozen import frozen

__all__ = ["Answer", "Difference", "explain_key"]

_MISSING = "-"


@frozen
class Difference:
    """A part of the key in which an entry differs.

    Attributes:
        part: Its name, as in ``shapes.x``.
        entry: What the entry has; "-" for nothing.
        asked: What was asked for.
    """

    part: str
    entry: str
    asked: str

    def to_dict(self) -> dict[str, str]:
        """The fields by name."""
        return {"part": self.part, "entry": self.entry, "asked": self.asked}


@frozen
class Answer:
    """The answer whether a program is in the cache, and if not, the nearest one.

    Attributes:
        key: The key of what is asked for.
        is_hit: Whether there is an entry of that key.
        nearest: The nearest entry; ``None`` if the cache is empty.
        differences: What it has otherwise; empty for a hit.
    """

    key: str
    is_hit: bool
    nearest: CacheEntry | None
    differences: tuple[Difference, ...]


def explain_key(requests: Requests, name: str, folder: str) -> Answer:
    """Look for what is asked for in the cache, and compare it with the nearest entry.

    An entry of the same model, or of the same name, is nearer than all others; then the fewest
    differences count, and then which one was used last.

    Raises:
        PopcError: the model cannot be read, or the cache.
    """
    first = requests.programs[0]
    check_target(first.options)
    loaded = first.load()
    asked = key_parts(requests, loaded, folder).parts
    key, leaves = key_of(asked), dict(_leaves(asked, ""))
    found = [stored.entry for stored in stored_entries(folder) if stored.entry is not None]
    nearest = min(found, key=lambda entry: _distance(entry, leaves, name), default=None)
    if nearest is None or nearest.key == key:
        return Answer(key, nearest is not None, nearest, ())
    return Answer(key, is_hit=False, nearest=nearest, differences=_differences(nearest, leaves))


def _distance(entry: CacheEntry, asked: Mapping[str, Any], name: str) -> tuple[bool, int]:
    leaves = dict(_leaves(entry.parts, ""))
    related = leaves.get("model.sha256") == asked["model.sha256"] or name in entry.names
    unlike = sum(leaves.get(part) != asked.get(part) for part in leaves.keys() | asked.keys())
    return not related, unlike


def _differences(entry: CacheEntry, asked: Mapping[str, Any]) -> tuple[Difference, ...]:
    leaves = dict(_leaves(entry.parts, ""))
    return tuple(
        Difference(part, _text(leaves, part), _text(asked, part))
        for part in sorted(leaves.keys() | asked.keys())
        if leaves.get(part) != asked.get(part)
    )


def _text(leaves: Mapping[str, Any], part: str) -> str:
    if part not in leaves:
        return _MISSING
    value = leaves[part]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value.hex() if isinstance(value, bytes) else str(value)


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The values of nested maps by their places."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(item) if isinstance(item, tuple) else item
