"""Options that somebody has set: names of other systems, mistakes, what does not go together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from popc.options.combinations import conflicts_among
from popc.options.dialects import popart
from popc.options.dialects.known import DIALECTS, marks_of
from popc.options.dialects.popart_processes import all_replicas
from popc.options.dialects.translate import translate
from popc.options.foreign import ForeignSettings
from popc.options.kinds import Known, Truth
from popc.options.options import SCHEMA, Options
from popc.options.sources import Setting
from popc.options.table import FrozenTable
from popc_runtime.errors import OptionError
from popc_runtime.format import Origin
from popc_runtime.ground.frozen import mutable

__all__ = ["changed", "resolved"]

_SPECS: Final = {spec.name: spec for spec in SCHEMA}
_SWITCH: Final = Truth()  # of a switch of PopART


def resolved(
    sources: Sequence[Sequence[Setting]],
    of_sources: Sequence[Sequence[str]],
    passes: Mapping[str, Sequence[str]],
    *,
    trains: bool,
) -> Options:
    """The options that ``sources`` set, the last of which wins; see `resolve_options`.

    Args:
        sources: The settings of each.
        of_sources: What is wrong with each already.
        passes: The names that options of passes may contain.
        trains: As there.
    """
    problems: list[str] = []
    translation = translate(sources, problems, trains=trains)
    resolver = _Resolver(passes, foreign=translation.foreign, problems=problems)
    resolver.take(translation.implied)
    for found, source in zip(of_sources, translation.sources, strict=True):
        resolver.problems += found
        resolver.take(source)
    return resolver.options()


def changed(options: Options, values: Mapping[str, object]) -> Options:
    """See `changed_options`."""
    kept = {name: getattr(options, name) for name in _SPECS if values.get(name, name) is not None}
    origins = {name: label for name, label in options.origins.items() if name in kept}
    resolver = _Resolver({}, kept, origins, foreign=options.foreign)
    given = {name: value for name, value in values.items() if value is not None}
    resolver.take(Setting(name, value, Origin.CLI, "--set") for name, value in given.items())
    return resolver.options()


@mutable
class _Resolver:
    """Values and problems so far."""

    passes: Mapping[str, Sequence[str]]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    foreign: ForeignSettings = field(default_factory=ForeignSettings)
    problems: list[str] = field(default_factory=list[str])
    switched_off: dict[str, Setting] = field(default_factory=dict[str, Setting])

    def take(self, settings: Iterable[Setting]) -> None:
        """Set what one source sets."""
        seen: dict[str, str] = {}
        for setting in _with_members(all_replicas(settings, self.problems)):
            name = _name_of(setting.key)
            if setting.key in popart.SWITCHES:
                self._switch(setting)
            elif name is None and popart.changes_nothing(setting.key, setting.value):
                continue
            elif name is None:
                self.problems.append(f"{_unknown(setting.key)} (in {setting.place})")
            elif name in seen:
                self.problems.append(_twice(seen[name], setting))
            else:
                seen[name] = setting.shown
                self._set(name, setting)

    def _set(self, name: str, setting: Setting) -> None:
        kind = _SPECS[name].kind
        if isinstance(kind, Known) and name in self.passes:
            kind = kind.among(self.passes[name])
        try:
            value = kind.parse(setting.value)
        except ValueError as error:
            self.problems.append(f"{setting.shown} {error} (in {setting.place})")
            return
        before = self.values.get(name)
        self.values[name] = before.updated(value) if isinstance(before, FrozenTable) else value
        self.origins[name] = setting.origin

    def _switch(self, setting: Setting) -> None:
        """A switch of PopART's: the option that it belongs to says the same."""
        try:
            value = _SWITCH.parse(setting.value)
        except ValueError as error:
            self.problems.append(f"{setting.key} {error} (in {setting.place})")
            return
        self.switched_off.pop(setting.key, None)
        if not value:
            self.switched_off[setting.key] = setting

    def options(self) -> Options:
        """The options, if nothing is wrong with them."""
        options = Options(**self.values, origins=FrozenTable(self.origins), foreign=self.foreign)
        conflicts = [*self._contradicted(options), *conflicts_among(options)]
        problems = [*self.problems, *map(self._in_words_of_host, conflicts)]
        if problems:
            count = len(problems)
            raise OptionError(
                "an option is wrong" if count == 1 else f"{count} options are wrong",
                details=tuple(problems),
                hint=self._where_to_look(),
            )
        return options

    def _in_words_of_host(self, problem: str) -> str:
        """``problem``, with the settings of another system that its options follow from."""
        found = [
            f"{option} follows from {keys}"
            for option, keys in self.foreign.keys.items()
            if option != keys and re.search(rf"\b{option}\b", problem)
        ]
        return f"{problem} ({'; '.join(found)})" if found else problem

    def _where_to_look(self) -> str:
        hint = "`popc options` lists the options, `popc options KEY` explains one"
        dialect = self.foreign.dialect
        return f"{hint}; `popc options --dialect {dialect}` lists those" if dialect else hint

    def _contradicted(self, options: Options) -> Iterator[str]:
        for key, setting in self.switched_off.items():
            name = popart.SWITCHES[key]
            number = getattr(options, name)
            if number > 1:
                yield (
                    f"{key} is false (in {setting.place}), but {name} is {number}: leave {key} "
                    "out, or set the number to 1"
                )


def _with_members(settings: Iterable[Setting]) -> Iterator[Setting]:
    """``settings``, with the members of PopART's records in place of these, or the other way."""
    for setting in _with_tables(settings):
        members = popart.members_of(setting.key, setting.value)
        if members is None:
            yield setting
            continue
        nested = (replace(setting, key=key, value=value) for key, value in members.items())
        yield from _with_members(nested)


def _with_tables(settings: Iterable[Setting]) -> Iterator[Setting]:
    """``settings``, with entries of PopART's records that are tables here put together."""
    tables: dict[str, Setting] = {}
    for setting in settings:
        entry = popart.table_entry(setting.key)
        if entry is None:
            yield setting
            continue
        record, name = entry
        before = tables[record].value if record in tables else {}
        assert isinstance(before, Mapping), "made below"
        tables[record] = replace(setting, key=record, value={**before, name: setting.value})
    yield from tables.values()


def _name_of(key: str) -> str | None:
    """Our name of an option that is written in our way or PopART's; ``None`` if there is none."""
    name = popart.OPTIONS.get(key, key).replace("-", "_")
    return name if name in _SPECS else None


def _unknown(key: str) -> str:
    from difflib import get_close_matches

    reason = popart.why_unsupported(key)
    if reason:
        return f"{key} is an option of PopART that this version of popc does not support: {reason}"
    of = {name: dialect.title for dialect in DIALECTS for name in marks_of(dialect)}
    ours = [*_SPECS, *popart.OPTIONS]
    meant = get_close_matches(key, [*ours, *sorted(of)], 1)
    if not meant:
        return f"there is no option {key!r}"
    system = "" if meant[0] in ours else f" of {of[meant[0]]}"
    return f"there is no option {key!r}: did you mean {meant[0]}{system}?"


def _twice(first: str, second: Setting) -> str:
    other = "" if first == second.shown else f", the other time as {first}"
    return f"{second.shown} is given twice{other} (in {second.place})"
