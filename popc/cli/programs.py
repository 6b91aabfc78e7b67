"""Programs that verbs run: archives, or models, which the cache has compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from popc.cli.console import Console
from popc.cli.model_options import ModelSettings, read_source, refuse_model_settings

if TYPE_CHECKING:
    from popc.caching.programs import ProgramCache
    from popc.progress import Watch
    from popc.requests import Requests
    from popc_runtime import Executable

__all__ = ["cache_option", "load_compiled", "load_program", "program_source"]

_F = TypeVar("_F", bound=Callable[..., Any])

cache_option: Callable[[_F], _F] = click.option(
    "--cache/--no-cache",
    "cached",
    default=True,
    show_default=True,
    help="Of a model: take the program from the cache, and keep it there (see `popc cache`).",
)


def load_program(
    file: Path,
    settings: ModelSettings,
    train: Path | None,
    console: Console,
    *,
    cached: bool,
    **loading: Any,
) -> Executable:
    """Load an archive, or a model, with the keywords ``loading`` of `popc_runtime.load`.

    Raises:
        UsageError: options for models are given, but the file is an archive.
        PopcError: the archive is damaged, or the model cannot be compiled.
    """
    import popc_runtime

    found = _found(file, settings, train, console, cached=cached)
    if not isinstance(found, _Cached):
        return popc_runtime.load(found, **loading)
    executable, program = found.cache.load(found.watch, found.wait, **loading)
    console.warn(program.notes)
    return executable


def program_source(
    file: Path, settings: ModelSettings, train: Path | None, console: Console, *, cached: bool
) -> Path | bytes:
    """The archive that `load_program` would load: a file, or what is in none; errors as there."""
    found = _found(file, settings, train, console, cached=cached)
    if not isinstance(found, _Cached):
        return found
    program = found.cache.get(found.watch, found.wait)
    console.warn(program.notes)
    source = program.source
    return source if isinstance(source, bytes) else Path(source)


class _Cached(NamedTuple):
    """A cache asked for a program, and who is told meanwhile."""

    cache: ProgramCache
    watch: Callable[[], Watch]
    wait: Callable[[], None]


def _found(
    file: Path, settings: ModelSettings, train: Path | None, console: Console, *, cached: bool
) -> Path | bytes | _Cached:
    """An archive, or where to ask for it."""
    from popc_runtime.format import is_archive

    if str(file) != "-" and is_archive(file):
        refuse_model_settings(settings, train)
        return file
    model = read_source(file)
    if not cached:
        return _compiled(settings.requests(model, train), console)
    from popc.caching.programs import ProgramCache
    from popc_runtime.cache import cache_folder

    given = settings.as_given(cache_folder(), train)
    cache = ProgramCache(cache_folder(), model, given, lambda: settings.requests(model, train), "")
    return _Cached(cache, lambda: _watch(console), lambda: _wait(console))


def load_compiled(requests: Requests, name: str, console: Console, *, cached: bool) -> Executable:
    """Load the programs of a model that was read; ``name`` is what the cache calls them."""
    import popc_runtime

    if not cached:
        return popc_runtime.load(_compiled(requests, console))
    from popc.caching.programs import ProgramCache
    from popc_runtime.cache import cache_folder

    cache = ProgramCache(cache_folder(), requests, {}, lambda: requests, name)
    executable, program = cache.load(lambda: _watch(console), lambda: _wait(console))
    console.warn(program.notes)
    return executable


def _compiled(requests: Requests, console: Console) -> bytes:
    from popc.api import compile_requests

    archive = compile_requests(requests, _watch(console))
    console.warn(archive.notes)
    return archive.to_bytes()


def _watch(console: Console) -> Watch:
    from popc.progress import Watch

    return Watch(console.on_progress())


def _wait(console: Console) -> None:
    console.note("another process compiles the same: waiting for it")
