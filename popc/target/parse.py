"""Targets from TOML files; every problem of a file is reported at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

from popc.target.target import Conv, Exchange, Host, Links, Target, Tile
from popc.target.topology import Topology
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.paths import open_regular

__all__ = ["ALIASES", "PRESETS", "find_target", "parse_target", "preset_text", "target_file"]

PRESETS: Final = ("ipu1", "ipu2", "ipu21", "bow")
ALIASES: Final = {"c600": "ipu21", "mk1": "ipu1", "gc2": "ipu1", "mk2": "ipu2", "gc200": "ipu2"}

_PARTS: Final[dict[str, type]] = {
    "tile": Tile,
    "conv": Conv,
    "exchange": Exchange,
    "links": Links,
    "host": Host,
}
# Bounds for a file's numbers, far above any machine, so that what is computed stays finite.
_MAX_TILES: Final = 1 << 20
_MAX: Final = 1 << 50
# Fields that may be zero; all others must be positive.
_MAY_BE_ZERO: Final = frozenset(
    {
        "interleaved_bytes", "vertex_launch_cycles", "stack_bytes", "fp8_in_fp16_out_units",
        "fp16_in_fp16_out_units", "setup_cycles", "sync_cycles", "global_sync_cycles",
        "intra_card", "cross", "up", "streaming_memory_bytes", "streaming_bytes_per_second",
        "link_bits_per_second",
    }
)  # fmt: skip


def find_target(name: str) -> Target:
    """A preset by name, or the target that the file ``name`` describes.

    Raises:
        OptionError: there is no such preset or file, or the file is wrong in the ways listed.
    """
    known = ALIASES.get(name.lower(), name.lower())
    if known in PRESETS:
        return _preset(known)
    path = Path(name)
    if path.suffix != ".toml":
        raise OptionError(
            f"there is no target {name!r}",
            subject="target",
            hint=f"choose from {', '.join((*PRESETS, *ALIASES))}, or name a .toml file",
        )
    return parse_target(_read(path), name)


@cache
def _preset(name: str) -> Target:
    return parse_target(_loads(preset_text(name)), name)


def _loads(text: str) -> Mapping[str, Any]:
    import tomllib  # what compiles for no target in particular does not need it

    return tomllib.loads(text)


def target_file(name: str) -> str | None:
    """The file that ``name`` stands for as a target; ``None`` if it is the name of a preset."""
    known = ALIASES.get(name.lower(), name.lower())
    return None if known in PRESETS else name


def preset_text(name: str) -> str:
    """The file of a preset: a good start for a target of one's own."""
    from importlib.resources import files

    return files("popc.target").joinpath("data", f"{name}.toml").read_text(encoding="utf-8")


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        with open_regular(path) as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise OptionError(
            f"cannot read the target {os.fspath(path)}: {error.strerror}", subject="target"
        ) from error
    except UnicodeDecodeError as error:
        raise OptionError(
            f"the target {os.fspath(path)} is not a TOML file: it is not UTF-8 text",
            subject="target",
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OptionError(
            f"the target {os.fspath(path)} is not a TOML file: {error}", subject="target"
        ) from error
    except ValueError as error:  # NUL in the path
        raise OptionError(
            f"cannot read the target {os.fspath(path)!r}: {error}", subject="target"
        ) from error


def parse_target(data: Mapping[str, Any], where: str) -> Target:
    """A target from the tables of a file.

    Raises:
        OptionError: lists every problem.
    """
    start = _loads(preset_text(data["based_on"])) if _based(data) else {}
    merged = _merge(start, data)
    problems = list(_problems(merged))
    if "based_on" in data and not _based(data):
        problems.insert(0, f"based_on is {data['based_on']!r}, but must be one of {_choices()}")
    if problems:
        raise OptionError(
            f"the target {where} is wrong",
            subject="target",
            details=tuple(problems),
            hint="`popc targets --show ipu2` prints a complete one",
        )
    parts = {name: _part(kind, merged[name]) for name, kind in _PARTS.items()}
    name = str(merged.get("name", where))
    return Target(name, str(merged.get("description", "")), **parts)


def _choices() -> str:
    return ", ".join(PRESETS)


def _based(data: Mapping[str, Any]) -> bool:
    return data.get("based_on") in PRESETS


def _merge(start: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` over ``start``, table by table."""
    merged = dict(start)
    for key, value in data.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[key] = {**old, **value} if both else value  # type: ignore[dict-item]
    merged.pop("based_on", None)
    return merged


def _part(kind: type, table: Mapping[str, Any]) -> Any:
    values = dict(table)
    if kind is Links:
        values["topology"] = Topology(values["topology"])
    return kind(**values)


def _problems(data: Mapping[str, Any]) -> Iterator[str]:
    for key, value in data.items():
        if key in {"name", "description"}:
            if not isinstance(value, str) or not value:
                yield f"{key} is {value!r}, but must be text"
        elif key not in _PARTS:
            yield f"{key} is unknown"
    for name, kind in _PARTS.items():
        table = data.get(name)
        if isinstance(table, Mapping):
            yield from _table_problems(name, kind, table)
        else:
            yield f"the table [{name}] is missing"
    yield from _conflicts(data)


def _table_problems(name: str, kind: type, table: Mapping[str, Any]) -> Iterator[str]:
    known = {field.name: field for field in fields(kind)}
    for key in table:
        if key not in known:
            yield f"{name}.{key} is unknown"
    for key, field in known.items():
        if key in table:
            yield from _value_problems(f"{name}.{key}", key, table[key])
        elif field.default is MISSING:
            yield f"{name}.{key} is missing"


@frozen
class _Range:
    low: float
    high: float


def _range(key: str) -> _Range:
    if key == "count":
        return _Range(1, _MAX_TILES)
    if key == "max_ipus":
        return _Range(1, 64)
    return _Range(0 if key in _MAY_BE_ZERO else 1, _MAX)


def _value_problems(label: str, key: str, value: object) -> Iterator[str]:
    if key == "topology":
        if value not in Topology.__members__.values():
            yield f"{label} is {value!r}, but must be one of {', '.join(Topology)}"
        return
    if key == "efficiency":
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
            yield f"{label} is {value!r}, but must be above 0 and at most 1"
        return
    if key == "products_by_columns":
        if not isinstance(value, bool):
            yield f"{label} is {value!r}, but must be true or false"
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield f"{label} is {value!r}, but must be a whole number"
        return
    allowed = _range(key)
    if not allowed.low <= value <= allowed.high:
        yield f"{label} is {value:,}, but must be from {allowed.low:,} to {allowed.high:,}"


def _conflicts(data: Mapping[str, Any]) -> Iterator[str]:
    tile, links = data.get("tile"), data.get("links")
    if isinstance(tile, Mapping):
        memory, part = tile.get("memory_bytes"), tile.get("interleaved_bytes")
        if isinstance(memory, int) and isinstance(part, int) and part > memory:
            yield f"tile.interleaved_bytes is {part:,}, more than tile.memory_bytes ({memory:,})"
        width = tile.get("data_path_bits")
        if isinstance(width, int) and width % 32:
            yield f"tile.data_path_bits is {width}, but must be a multiple of 32"
    if isinstance(links, Mapping) and links.get("topology") == "none":
        most = links.get("max_ipus")
        if isinstance(most, int) and most > 1:
            yield f"links.max_ipus is {most}, but chips without links work alone"
