"""The command line that compiles a model as another one did, with a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from popc.cli.model_options import ModelSettings

if TYPE_CHECKING:
    from popc.study.advice import Change

__all__ = ["compile_line"]


def compile_line(model: Path, settings: ModelSettings, train: Path | None, change: Change) -> str:
    """``popc compile`` with the given settings and ``change``, quoted for a shell."""
    words = ["popc", "compile", str(model), *_words(settings, change)]
    if train is not None:
        words += ["--train", str(train)]
    import shlex

    return shlex.join(words)


def _words(settings: ModelSettings, change: Change) -> Iterator[str]:
    if settings.options is not None:
        yield from ("--options", str(settings.options))
    yield from _kept("--set", settings.set_, {**change.options})
    yield from _kept("--shape", settings.shape, change.shapes)
    yield from _kept("--dim", settings.dim, change.dims)
    for item in settings.bind:
        yield from ("--bind", item)
    if settings.outputs:
        yield from ("--outputs", settings.outputs)
    yield from change.arguments()
    given = {item.partition("=")[0] for item in settings.set_}
    for name, value in change.options.items():
        if value is None and name not in given:
            yield from ("--set", f"{name}={_default(name)}")


def _kept(flag: str, items: tuple[str, ...], changed: Mapping[str, object]) -> Iterator[str]:
    """The items whose names are not changed."""
    for item in items:
        name = item.partition("=")[0]
        table, _, entry = name.partition(".")
        replaced = changed.get(name, changed.get(table))
        whole = name in changed or (table in changed and not isinstance(replaced, Mapping))
        if not whole and not (isinstance(replaced, Mapping) and entry in replaced):
            yield from (flag, item)


def _default(name: str) -> str:
    """The default on the command line; tables have no such form, and are empty by default."""
    from popc.options import SCHEMA

    default = next(spec.default for spec in SCHEMA if spec.name == name)
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
