"""Options from every source: the command line wins over the environment, that over the file."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from popc.options.anchors import Anchor
from popc.options.dialects import popart
from popc.options.options import Options
from popc.options.schema import SCHEMA, OptionSpec
from popc_runtime.errors import OptionError, ResourceError
from popc_runtime.format import Origin

__all__ = ["resolve_options"]

_SPECS: Final = {spec.name: spec for spec in SCHEMA}
_ENV_PREFIX: Final = "POPC_"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


@dataclass(slots=True)
class _Collected:
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    problems: list[str] = field(default_factory=list[str])


def resolve_options(
    *,
    cli: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    values: Mapping[str, object] | None = None,
    pass_names: Sequence[str] = (),
) -> Options:
    """The effective options.

    Args:
        cli: Items ``key=value``; of a table, ``anchors.y=final``.
        env: Where to look for POPC_<NAME>.
        file: A TOML or JSON file.
        values: Values by name, from Python; they win over the environment, as the command line.
        pass_names: What ``disabled_passes`` may contain.

    Raises:
        OptionError: lists every problem of every source.
        ResourceError: the file cannot be read.
    """
    found = _Collected()
    for origin, items in (
        (Origin.FILE, _from_file(file, found)),
        (Origin.ENV, _from_env(env or {})),
        (Origin.API, list((values or {}).items())),
        (Origin.CLI, _from_cli(cli, found)),
    ):
        for key, value in items:
            _take(found, key, value, origin, pass_names)
    options = Options(**found.values, origins=found.origins)
    found.problems.extend(_conflicts(options))
    if found.problems:
        count = len(found.problems)
        raise OptionError(
            "an option is wrong" if count == 1 else f"{count} options are wrong",
            details=tuple(found.problems),
            hint="`popc options` lists the options, `popc options KEY` explains one",
        )
    return options


# -- sources -----------------------------------------------------------------------------------------


def _from_file(path: str | os.PathLike[str] | None, found: _Collected) -> list[tuple[str, Any]]:
    if path is None:
        return []
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResourceError(f"cannot read the options file {path}: {error}") from error
    try:
        loaded = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        found.problems.append(f"{Path(path).name} cannot be parsed: {error}")
        return []
    if not isinstance(loaded, dict):
        found.problems.append(f"{Path(path).name} must hold a table of options")
        return []
    return list(loaded.items())


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Only names of options: other POPC_ variables belong to the command line."""
    for spec in SCHEMA:
        value = env.get(_ENV_PREFIX + spec.name.upper())
        if value is not None:
            yield spec.name, _table(value) if spec.type == "anchors" else value


def _table(text: str) -> dict[str, str]:
    """``y=final,z=every_n:2`` as a table."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {key: value for key, _, value in pairs}


def _from_cli(items: Sequence[str], found: _Collected) -> Iterator[tuple[str, Any]]:
    tables: dict[str, dict[str, str]] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator:
            found.problems.append(f"--set {item}: expected KEY=VALUE")
        elif key.startswith("anchors."):
            tables.setdefault("anchors", {})[key.removeprefix("anchors.")] = value
        else:
            yield key, value
    yield from tables.items()


# -- values ------------------------------------------------------------------------------------------


def _take(
    found: _Collected, key: str, value: Any, origin: Origin, pass_names: Sequence[str]
) -> None:
    name = popart.OPTIONS.get(key, key)
    spec = _SPECS.get(name)
    if spec is None:
        found.problems.append(_unknown(key))
        return
    choices = tuple(pass_names) if name == "disabled_passes" else spec.choices
    try:
        found.values[name] = _PARSERS[spec.type](spec, choices, value)
        found.origins[name] = origin
    except ValueError as error:
        found.problems.append(f"{key} {error} (from {origin.value})")


def _unknown(key: str) -> str:
    if key in popart.UNSUPPORTED:
        return f"{key} is an option of PopART that this version of popc does not have"
    close = difflib.get_close_matches(key, [*_SPECS, *popart.OPTIONS], 1)
    return f"there is no option {key!r}" + (f": did you mean {close[0]}?" if close else "")


def _parse_bool(spec: OptionSpec, choices: tuple[str, ...], value: Any) -> bool:
    del spec, choices
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ValueError(f"is {value!r}, but must be true or false")


def _parse_int(spec: OptionSpec, choices: tuple[str, ...], value: Any) -> int:
    del choices
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"is {value!r}, but must be a whole number")  # noqa: TRY004 - collected
    if value < spec.minimum:
        raise ValueError(f"is {value}, but must be at least {spec.minimum}")
    return value


def _parse_choice(spec: OptionSpec, choices: tuple[str, ...], value: Any) -> str:
    del spec
    if isinstance(value, str) and value.lower() in choices:
        return value.lower()
    raise ValueError(f"is {value!r}, but must be one of {', '.join(choices)}")


def _parse_names(spec: OptionSpec, choices: tuple[str, ...], value: Any) -> tuple[str, ...]:
    del spec
    names = [item for item in value.split(",") if item] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(item, str) for item in names):
        raise ValueError(f"is {value!r}, but must be a list of names")
    unknown = sorted(set(names) - set(choices))
    if unknown:
        close = difflib.get_close_matches(unknown[0], choices, 1)
        advice = f"did you mean {close[0]}?" if close else f"the names are {', '.join(choices)}"
        raise ValueError(f"contains {unknown[0]!r}, which does not exist: {advice}")
    return tuple(sorted(set(names)))


def _parse_anchors(spec: OptionSpec, choices: tuple[str, ...], value: Any) -> dict[str, Anchor]:
    del spec, choices
    if not isinstance(value, Mapping):
        raise ValueError(f"is {value!r}, but must be a table from tensor names to return types")  # noqa: TRY004 - collected
    result: dict[str, Anchor] = {}
    for name in sorted(value):
        try:
            result[name] = Anchor.parse(value[name])
        except ValueError as error:
            raise ValueError(f"of {name!r} {error}") from None
    return result


_PARSERS: Final = {
    "anchors": _parse_anchors,
    "bool": _parse_bool,
    "choice": _parse_choice,
    "int": _parse_int,
    "names": _parse_names,
}


# -- conflicts ---------------------------------------------------------------------------------------


def _conflicts(options: Options) -> Iterator[str]:
    for name, anchor in options.anchors.items():
        problem = anchor.problem(options.batches_per_step)
        if problem:
            yield f"anchors of {name!r}: {problem}"
