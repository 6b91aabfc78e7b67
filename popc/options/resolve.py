"""Options from every source: the command line wins over Python, the environment and the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from popc.options.dialects import popart
from popc.options.options import SCHEMA, Options
from popc.options.sources import Setting, from_cli, from_env, from_file, from_values
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc.options.values import parse_value
from popc_runtime.errors import OptionError
from popc_runtime.format import Origin

__all__ = ["resolve_options"]

_SPECS: Final = {spec.name: spec for spec in SCHEMA}


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
        values: Values by name, from Python.
        pass_names: What ``disabled_passes`` may contain.

    A later source wins: defaults, ``file``, ``env``, ``values``, ``cli``.  Entries of tables are
    settings of their own.

    Raises:
        OptionError: lists every problem of every source.
        ResourceError: the file cannot be read.
    """
    resolver = _Resolver(pass_names)
    resolver.take(from_file(file, resolver.problems))
    resolver.take(from_env(env or {}, resolver.problems))
    resolver.take(from_values(values or {}))
    resolver.take(from_cli(cli, resolver.problems))
    return resolver.options()


@dataclass(slots=True)
class _Resolver:
    """Values and problems so far."""

    pass_names: Sequence[str]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    problems: list[str] = field(default_factory=list[str])

    def take(self, settings: Iterable[Setting]) -> None:
        """Set what one source sets."""
        seen: dict[str, str] = {}
        for setting in settings:
            name = _name_of(setting.key)
            if name is None:
                self.problems.append(f"{_unknown(setting.key)} (in {setting.place})")
            elif name in seen:
                self.problems.append(_twice(seen[name], setting))
            else:
                seen[name] = setting.key
                self._set(name, setting)

    def _set(self, name: str, setting: Setting) -> None:
        spec = _SPECS[name]
        if name == "disabled_passes":  # the one option whose choices are not part of the schema
            spec = replace(spec, choices=tuple(self.pass_names))
        try:
            value = parse_value(spec, setting.value)
        except ValueError as error:
            self.problems.append(f"{setting.key} {error} (in {setting.place})")
            return
        before = self.values.get(name)
        self.values[name] = before.updated(value) if isinstance(before, FrozenTable) else value
        self.origins[name] = setting.origin

    def options(self) -> Options:
        """The options, if nothing is wrong with them."""
        options = Options(**self.values, origins=FrozenTable(self.origins))
        problems = [*self.problems, *_conflicts(options)]
        if problems:
            count = len(problems)
            raise OptionError(
                "an option is wrong" if count == 1 else f"{count} options are wrong",
                details=tuple(problems),
                hint="`popc options` lists the options, `popc options KEY` explains one",
            )
        return options


def _name_of(key: str) -> str | None:
    """Our name of an option that is written in our way or PopART's; ``None`` if there is none."""
    name = popart.OPTIONS.get(key, key).replace("-", "_")
    return name if name in _SPECS else None


def _unknown(key: str) -> str:
    reason = popart.why_unsupported(key)
    if reason:
        return f"{key} is an option of PopART that this version of popc does not support: {reason}"
    advice = did_you_mean(key, [*_SPECS, *popart.OPTIONS])
    return f"there is no option {key!r}" + (f": {advice}" if advice else "")


def _twice(first: str, second: Setting) -> str:
    other = "" if first == second.key else f", the other time as {first}"
    return f"{second.key} is given twice{other} (in {second.place})"


def _conflicts(options: Options) -> Iterator[str]:
    """Options that are fine by themselves but not together."""
    anchors = [(f"anchors of {name!r}", anchor) for name, anchor in options.anchors.items()]
    for what, anchor in (*anchors, ("default_anchor", options.default_anchor)):
        problem = anchor.problem(options.batches_per_step)
        if problem:
            yield f"{what}: {problem}"
