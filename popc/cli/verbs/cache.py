"""popc cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from popc.cli.model_options import (
    ModelSettings,
    model_argument,
    model_options,
    read_source,
    several_options,
    train_option,
)
from popc.cli.report import Report, counted, format_bytes, format_table
from popc_runtime.cache import cache_bounds, cache_folder, find_entry, parse_age, parse_size

if TYPE_CHECKING:
    from popc.caching.why import Answer
    from popc_runtime.cache import CacheBounds, Stored

__all__ = ["command"]

_SHORT = 12  # hexadecimal digits of a key that are printed; entries are found by them, too
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be removed.")


@click.group("cache")
def command() -> None:
    """Look after the cache, which keeps what was compiled.

    \b
    popc cache status
    popc cache why model.onnx --dim batch=8

    `popc run`, `bench` and `verify` of a model, and `popc.load` in Python, look for its program
    here. POPC_CACHE names another folder; POPC_CACHE_MAX_SIZE (10GB) and POPC_CACHE_MAX_AGE (90d)
    say what is kept: what was used longest ago goes first.
    """


@command.command("status")
def _status() -> Report:
    """Show where the cache is, and how large.

    \b
    popc cache status
    """
    from popc_runtime.cache import stored_entries

    folder, bounds = cache_folder(), cache_bounds()
    entries = stored_entries(folder)
    size, damaged = sum(stored.size for stored in entries), _damaged(entries)
    data = {
        "folder": folder,
        "entries": len(entries),
        "damaged": damaged,
        "bytes": size,
        "max_bytes": bounds.size,
        "max_age_seconds": bounds.age,
    }
    rows = [
        ["folder", folder],
        ["programs", f"{len(entries):,}" + (f", {damaged} damaged" if damaged else "")],
        ["size", f"{format_bytes(size)} of {format_bytes(bounds.size)}"],
        ["kept for", f"{bounds.age / 86_400:g} days after the last use"],
    ]
    return Report("cache-status", data, format_table(rows))


@command.command("list")
def _list() -> Report:
    """List the programs, the one that was used last first.

    \b
    popc cache list
    popc --format json cache list
    """
    from popc_runtime.cache import stored_entries

    folder = cache_folder()
    entries = stored_entries(folder)
    header = ["key", "name", "size", "last used", "popc", "made for"]
    rows = [header, *(_row(stored) for stored in entries)]
    text = format_table(rows, right=(2,)) if entries else f"the cache {folder} is empty"
    data = {"folder": folder, "entries": [_facts(stored) for stored in entries]}
    return Report("cache-list", data, text)


@command.command("why")
@model_argument
@model_options
@several_options
@train_option("Ask for a training step; this file names loss and optimizer.")
def _why(*, model: Path, settings: ModelSettings, train: Path | None) -> Report:
    """Say whether the program of MODEL is there, and if not, what the nearest one has otherwise.

    Exits with 1 if it is not there.

    \b
    popc cache why model.onnx --dim batch=8
    """
    from popc.caching.programs import model_name
    from popc.caching.why import explain_key

    requests = settings.requests(read_source(model), train)
    answer = explain_key(requests, model_name(model), cache_folder())
    near = answer.nearest
    data = {
        "key": answer.key,
        "hit": answer.is_hit,
        "nearest": None if near is None else {"key": near.key, "names": list(near.names)},
        "differences": [difference.to_dict() for difference in answer.differences],
    }
    return Report("cache-why", data, _why_text(answer), exit_code=0 if answer.is_hit else 1)


@command.command("prune")
@click.option("--max-size", metavar="SIZE", help="Keep so much, as in 5GB.")
@click.option("--max-age", metavar="AGE", help="Keep what was used since then, as in 30d or 12h.")
@_DRY_RUN
def _prune(*, max_size: str | None, max_age: str | None, dry_run: bool) -> Report:
    """Remove what is damaged, too old or too much, and what killed processes have left.

    \b
    popc cache prune --max-size 2GB
    """
    from popc_runtime.cache import prune

    bounds = _bounds(max_size, max_age)
    return _removed("cache-prune", prune(cache_folder(), bounds, dry_run=dry_run), dry_run=dry_run)


@command.command("clear")
@click.argument("programs", nargs=-1, metavar="[KEY_OR_NAME]...")
@_DRY_RUN
def _clear(*, programs: tuple[str, ...], dry_run: bool) -> Report:
    """Remove all programs, or those that are named.

    \b
    popc cache clear
    popc cache clear resnet50
    """
    from popc_runtime.cache import clear, remove_entry, stored_entries

    folder = cache_folder()
    if not programs:
        return _removed("cache-clear", clear(folder, dry_run=dry_run), dry_run=dry_run)
    keys = {find_entry(folder, program).key for program in programs}
    chosen = [stored for stored in stored_entries(folder) if stored.key in keys]
    if not dry_run:
        chosen = [stored for stored in chosen if remove_entry(folder, stored.key)]
    return _removed("cache-clear", chosen, dry_run=dry_run)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("programs", nargs=-1, metavar="[KEY_OR_NAME]...")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def _export(*, file: Path, programs: tuple[str, ...], force: bool) -> Report:
    """Write all programs, or those that are named, to FILE, for `popc cache import` elsewhere.

    \b
    popc cache export programs.zip resnet50
    """
    from popc_runtime.cache import export_entries, stored_entries

    folder = cache_folder()
    if programs:
        entries = [find_entry(folder, program) for program in dict.fromkeys(programs)]
    else:
        entries = [stored.entry for stored in stored_entries(folder) if stored.entry is not None]
    export_entries(folder, entries, file, force=force)
    size = file.stat().st_size
    data = {"file": str(file), "bytes": size, "keys": [entry.key for entry in entries]}
    text = f"{file} ({counted(len(entries), 'program')}, {format_bytes(size)})"
    return Report("cache-export", data, text)


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def _import(*, file: Path) -> Report:
    """Add the programs of FILE, which `popc cache export` has written.

    \b
    popc cache import programs.zip
    """
    from popc_runtime.cache import import_entries

    folder = cache_folder()
    entries = import_entries(folder, file)
    data = {"folder": folder, "keys": [entry.key for entry in entries]}
    return Report("cache-import", data, f"{counted(len(entries), 'program')} added to {folder}")


def _bounds(size: str | None, age: str | None) -> CacheBounds:
    from popc_runtime.cache import CacheBounds

    bounds = cache_bounds()
    return CacheBounds(
        bounds.size if size is None else parse_size(size, "--max-size"),
        bounds.age if age is None else parse_age(age, "--max-age"),
    )


def _removed(verb: str, removed: list[Stored], *, dry_run: bool) -> Report:
    size = sum(stored.size for stored in removed)
    data = {"removed": [stored.key for stored in removed], "bytes": size, "dry_run": dry_run}
    done = "would be removed" if dry_run else "removed"
    return Report(verb, data, f"{counted(len(removed), 'program')} {done} ({format_bytes(size)})")


def _damaged(entries: list[Stored]) -> int:
    return sum(stored.entry is None for stored in entries)


def _row(stored: Stored) -> list[str]:
    used = time.strftime("%Y-%m-%d %H:%M", time.gmtime(stored.used))
    if stored.entry is None:
        return [stored.key[:_SHORT], "", format_bytes(stored.size), used, "", "(damaged)"]
    made_for = {**stored.entry.parts}
    popc: Any = made_for.pop("popc", {})
    given = [f"{topic} {_brief(made_for[topic])}" for topic in made_for if topic not in _HASHES]
    return [
        stored.key[:_SHORT],
        ", ".join(stored.entry.names),
        format_bytes(stored.size),
        used,
        str(popc.get("version", "")),
        "; ".join(text for text in given if not text.endswith(" ")),
    ]


_HASHES = ("model", "target")


def _brief(part: Any) -> str:
    if isinstance(part, dict):
        return ", ".join(
            f"{name}={_brief(value)}" for name, value in part.items() if value not in (None, "", [])
        )
    if isinstance(part, list | tuple):
        return ",".join(map(_brief, part))
    return "" if part is None else str(part)


def _facts(stored: Stored) -> dict[str, Any]:
    entry = stored.entry
    return {
        "key": stored.key,
        "names": [] if entry is None else list(entry.names),
        "bytes": stored.size,
        "used": stored.used,
        "damaged": entry is None,
        "parts": {} if entry is None else _json(entry.parts),
    }


def _json(value: Any) -> Any:
    """``value`` with hashes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list | tuple) else value


def _why_text(answer: Answer) -> str:
    near = answer.nearest
    if near is None:
        return f"not there: the cache is empty (key {answer.key[:_SHORT]})"
    if answer.is_hit:
        return f"there: {near.key[:_SHORT]} ({', '.join(near.names)})"
    rows = [["part", "nearest program", "asked for"]]
    rows += [
        [difference.part, _cut(difference.entry), _cut(difference.asked)]
        for difference in answer.differences
    ]
    name = f" ({', '.join(near.names)})" if near.names else ""
    count = counted(len(answer.differences), "part")
    return (
        f"not there (key {answer.key[:_SHORT]}); the nearest is {near.key[:_SHORT]}{name}, "
        f"which differs in {count}:\n{format_table(rows)}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:_SHORT]}..."
