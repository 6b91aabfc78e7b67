"""The sources of options: a file, the environment, Python, the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from popc.options.options import SCHEMA
from popc.options.suggest import did_you_mean
from popc_runtime.errors import ResourceError
from popc_runtime.format import Origin
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.paths import usable_path

__all__ = ["Setting", "from_cli", "from_env", "from_file", "from_values", "read_table"]

_PREFIX: Final = "POPC_"
_TABLES: Final = frozenset(spec.name for spec in SCHEMA if spec.kind.is_table)
# Other variables of popc begin alike: only what can hardly be anything else is called a mistake.
_SIMILARITY: Final = 0.85


@frozen
class Setting:
    """One option as it was set; ``place`` tells the user where.

    ``host`` is the setting of another system that it follows from, "" if it was set as it is.
    """

    key: str
    value: object
    origin: Origin
    place: str
    host: str = ""

    @property
    def shown(self) -> str:
        """The name that the user wrote."""
        return self.host or self.key


def from_file(path: str | os.PathLike[str] | None, problems: list[str]) -> list[Setting]:
    """The settings of a TOML or JSON file.

    Raises:
        ResourceError: the file cannot be read.
    """
    if path is None:
        return []
    table = read_table(path, "options file", problems)
    return [Setting(key, value, Origin.FILE, Path(path).name) for key, value in table.items()]


def read_table(path: str | os.PathLike[str], what: str, problems: list[str]) -> dict[str, Any]:
    """The content of a TOML or JSON file; empty, with a problem noted, if it is malformed.

    Raises:
        ResourceError: the file cannot be read.
    """
    name = Path(path).name
    try:
        text = Path(usable_path(path)).read_text(encoding="utf-8")
    except OSError as error:
        raise ResourceError(
            f"cannot read the {what} {path}: {error.strerror}", subject=str(path)
        ) from error
    except UnicodeDecodeError:
        problems.append(f"{name} cannot be parsed: it is not UTF-8 text")
        return {}
    try:
        table = _load_json(text) if Path(path).suffix == ".json" else _load_toml(text)
    except ValueError as error:
        problems.append(f"{name} cannot be parsed: {error}")
        return {}
    except RecursionError:
        problems.append(f"{name} cannot be parsed: its values are nested too deeply")
        return {}
    if not isinstance(table, dict):
        problems.append(f"{name} must hold a table of options")
        return {}
    return table


def _load_toml(text: str) -> Any:
    import tomllib  # what is compiled without a file of options does not need it

    return tomllib.loads(text)


def _load_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_repetition)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """TOML refuses a key that is given twice; JSON would take the last."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return table


def from_env(env: Mapping[str, str], problems: list[str]) -> list[Setting]:
    """The settings among environment variables; what looks like a mistyped one is a problem."""
    names = {spec.variable: spec.name for spec in SCHEMA}
    suffixes = [variable.removeprefix(_PREFIX) for variable in names]
    settings: list[Setting] = []
    for variable in sorted(name for name in env if name.startswith(_PREFIX)):
        if variable in names:
            settings.append(Setting(names[variable], env[variable], Origin.ENV, variable))
            continue
        suffix = variable.removeprefix(_PREFIX)
        advice = did_you_mean(suffix, suffixes, similarity=_SIMILARITY)
        if advice:
            advice = advice.replace("mean ", f"mean {_PREFIX}")
            problems.append(f"{variable} is set, but is not an option: {advice}")
    return settings


def from_values(values: Mapping[str, object]) -> list[Setting]:
    """The settings of a Python caller."""
    return [Setting(key, value, Origin.API, "options") for key, value in values.items()]


def from_cli(items: Iterable[str], problems: list[str]) -> list[Setting]:
    """The settings of ``--set KEY=VALUE``; ``TABLE.NAME=VALUE`` sets one entry of a table."""
    settings: list[Setting] = []
    tables: dict[str, dict[str, str]] = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator:
            problems.append(f"--set {item}: expected KEY=VALUE")
        elif key.partition(".")[0] in _TABLES and "." in key:
            table, _, rest = item.partition(".")
            # Names of tensors may contain "=", the values of entries cannot.
            name, _, value = rest.rpartition("=")
            if name in tables.setdefault(table, {}):
                problems.append(f"--set {item}: {table}.{name} is given twice")
            tables[table][name] = value
        else:
            settings.append(Setting(key, value, Origin.CLI, "--set"))
    return [
        *settings,
        *(Setting(key, section, Origin.CLI, "--set") for key, section in tables.items()),
    ]
