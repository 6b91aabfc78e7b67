"""The folder of the cache, and the bounds of its size.

The rule is that of the package `platformdirs`, which the runtime does not depend on; the compiler
asks here too, so that both find the same folder.
"""

from __future__ import annotations

import os
import sys

from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final, TypeAlias
from popc_runtime.process.paths import usable_path

__all__ = ["CacheBounds", "CacheSource", "cache_bounds", "cache_folder", "parse_age", "parse_size"]

# What functions take as ``cache``: True for the folder of `cache_folder`, or a folder.
CacheSource: TypeAlias = "bool | str | os.PathLike[str] | None"

_FOLDER: Final = "POPC_CACHE"
_SIZE: Final = "POPC_CACHE_MAX_SIZE"
_AGE: Final = "POPC_CACHE_MAX_AGE"
_UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_MOST: Final = 1e15  # of any unit
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@frozen
class CacheBounds:
    """The bytes that the cache may hold, and the seconds that an entry may go unused."""

    size: int = 10 * 10**9
    age: int = 90 * 86_400


def cache_folder(given: CacheSource = None) -> str:
    r"""The folder ``given``, or POPC_CACHE, or that of the system for caches of this user.

    That is ``$XDG_CACHE_HOME/popc``, else ``~/.cache/popc``; on macOS ``~/Library/Caches/popc``,
    on Windows ``%LOCALAPPDATA%\popc\Cache``.

    Raises:
        UsageError: ``given`` is no path.
    """
    if given is not None and not isinstance(given, bool):
        return os.path.abspath(os.path.expanduser(usable_path(given)))
    chosen = os.environ.get(_FOLDER, "")
    return os.path.abspath(os.path.expanduser(chosen or _system_folder(sys.platform)))


def _system_folder(platform: str) -> str:
    if platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.join("~", "AppData", "Local")
        return os.path.join(local, "popc", "Cache")
    if platform == "darwin":
        return "~/Library/Caches/popc"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if base.strip() else "~/.cache", "popc")


def cache_bounds() -> CacheBounds:
    """The bounds that POPC_CACHE_MAX_SIZE and POPC_CACHE_MAX_AGE set, or the default ones.

    Raises:
        UsageError: a variable has no meaning.
    """
    bounds = CacheBounds()
    size, age = os.environ.get(_SIZE, ""), os.environ.get(_AGE, "")
    return CacheBounds(
        parse_size(size, _SIZE) if size else bounds.size,
        parse_age(age, _AGE) if age else bounds.age,
    )


def parse_size(text: str, place: str) -> int:
    """Bytes in ``text``, such as ``500MB``; ``place`` says where it was given.

    Raises:
        UsageError: it is no size.
    """
    number = _number(text.lower().rstrip("bgkmt "))
    unit = text.lower()[len(text.lower().rstrip("bgkmt ")) :].strip()
    if number is None or unit not in _UNITS:
        raise UsageError(f"{place} {text}: expected a size, as in 500MB or 20GB")
    return int(number * _UNITS[unit])


def parse_age(text: str, place: str) -> int:
    """Seconds in ``text``, such as ``30d`` or ``12h``; ``place`` says where it was given.

    Raises:
        UsageError: it is no span of time.
    """
    number, unit = _number(text[:-1]), text[-1:].lower()
    if number is None or unit not in _SECONDS:
        raise UsageError(f"{place} {text}: expected a span of time, as in 30d or 12h")
    return int(number * _SECONDS[unit])


def _number(text: str) -> float | None:
    whole, _, part = text.strip().partition(".")
    plain = (whole + part).isdecimal() and (whole + part).isascii()
    return number if plain and (number := float(text)) < _MOST else None
