"""From the settings of another system to those of popc, before anything else sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from popc.options.dialects.dialect import (
    TRAIN,
    Becomes,
    Computed,
    Dialect,
    HostKey,
    HostTable,
    Nothing,
    Refused,
)
from popc.options.dialects.known import DIALECTS, marks_of, native_names
from popc.options.foreign import ForeignSettings, HostRow
from popc.options.sources import Setting
from popc.options.table import FrozenTable
from popc_runtime.format import Origin
from popc_runtime.ground.frozen import mutable

__all__ = ["Translation", "translate"]

_CHOICE = "dialect"  # the key with which a table says what it is


@mutable
class Translation:
    """The sources after translation.

    Attributes:
        sources: Settings of popc, source by source; those of the other system are among them.
        implied: What the other system does without being asked; any other setting wins.
        foreign: An account of it.
    """

    sources: list[list[Setting]]
    implied: list[Setting] = field(default_factory=list[Setting])
    foreign: ForeignSettings = field(default_factory=ForeignSettings)


def translate(
    sources: Sequence[Sequence[Setting]], problems: list[str], *, trains: bool
) -> Translation:
    """Translate what is written in a dialect, if anything is.

    Args:
        sources: Settings by source, the one that wins last.
        problems: Gets what is wrong.
        trains: Whether the options are for a program that trains.
    """
    chosen = [setting for source in sources for setting in source if setting.key == _CHOICE]
    rest = [[setting for setting in source if setting.key != _CHOICE] for source in sources]
    if chosen:
        dialect = _chosen(chosen, problems)
    else:
        found = _recognised(rest)
        if len(found) > 1:
            problems.append(_mixed(found))
            rest = [[setting for setting in source if _marked(setting) is None] for source in rest]
        dialect = found[0][0] if len(found) == 1 else None
    if dialect is None or dialect.mixes:
        return Translation(rest)
    return _Translator(dialect, problems, trains=trains).result(rest)


def _chosen(settings: Sequence[Setting], problems: list[str]) -> Dialect | None:
    last = settings[-1]
    found = next((dialect for dialect in DIALECTS if dialect.name == last.value), None)
    if found is None:
        names = ", ".join(dialect.name for dialect in DIALECTS)
        problems.append(f"dialect is {last.value!r} (in {last.place}), but must be one of {names}")
    return found


def _recognised(sources: Sequence[Sequence[Setting]]) -> list[tuple[Dialect, Setting]]:
    """The dialects that alone have a key of those that are given, each with the first such."""
    found: dict[str, tuple[Dialect, Setting]] = {}
    for setting in (setting for source in sources for setting in source):
        dialect = None if setting.origin is Origin.ENV else _marked(setting)
        if dialect is not None:
            found.setdefault(dialect.name, (dialect, setting))
    return list(found.values())


def _marked(setting: Setting) -> Dialect | None:
    """The dialect that alone has the key of a setting."""
    names = {setting.key, setting.key.partition(".")[0]}
    return next((dialect for dialect in DIALECTS if names & marks_of(dialect)), None)


def _mixed(found: Sequence[tuple[Dialect, Setting]]) -> str:
    said = "; ".join(
        f"{setting.key} (in {setting.place}) is of {dialect.title}" for dialect, setting in found
    )
    return f"settings of several systems do not mix: {said}"


def _join(kept: list[Setting], made: Sequence[Setting]) -> None:
    """Add what a row has become; rows that agree, or have entries of one table, are one setting."""
    for setting in made:
        for place, other in enumerate(kept):
            value = _joined(other.value, setting.value)
            if other.host and other.key == setting.key and value is not None:
                kept[place] = replace(other, value=value, host=f"{other.host}, {setting.host}")
                break
        else:
            kept.append(setting)


def _joined(first: object, second: object) -> object | None:
    """Both in one; ``None`` if they contradict each other."""
    if first == second:
        return first
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return None
    if any(first[name] != second[name] for name in first.keys() & second.keys()):
        return None
    return {**first, **second}


class _Translator:
    """Translates tables of one dialect."""

    def __init__(self, dialect: Dialect, problems: list[str], *, trains: bool) -> None:
        self._dialect = dialect
        self._problems = problems
        self._trains = trains
        self._given: dict[str, Setting] = {}  # parsed, by full name
        self._rows: list[HostRow] = []
        self._training: dict[str, object] = {}

    def result(self, sources: Sequence[Sequence[Setting]]) -> Translation:
        """See `translate`."""
        native = [list(self._native(source)) for source in sources]
        options = {setting.key: setting.value for source in native for setting in source}
        values = {name: setting.value for name, setting in self._given.items()}
        table = HostTable(self._dialect, values, trains=self._trains, options=options)
        implied = self._implied(table)
        for key in self._dialect.keys:
            for name in self._names(key):
                made = self._made(key, name, table)
                setting = self._given.get(name)
                if setting is None:
                    implied += made
                else:
                    _join(self._source_of(setting, native, sources), made)
        foreign = ForeignSettings(
            self._dialect.name, tuple(self._rows), FrozenTable(self._training), self._trains
        )
        return Translation(native, implied, foreign)

    def _names(self, key: HostKey) -> list[str]:
        """The names of a row that are given, or whose default has to be said."""
        if not key.name.endswith("*"):
            return [key.name] if key.name in self._given or key.always else []
        return [name for name in self._given if self._dialect.find(name) is key]

    @staticmethod
    def _source_of(
        setting: Setting, native: list[list[Setting]], sources: Sequence[Sequence[Setting]]
    ) -> list[Setting]:
        origins = [{setting.origin for setting in source} for source in sources]
        return next(
            kept for kept, known in zip(native, origins, strict=True) if setting.origin in known
        )

    # -- what is given -----------------------------------------------------------------------------

    def _native(self, source: Sequence[Setting]) -> list[Setting]:
        """The settings of popc in a source; those of the dialect are noted."""
        found: list[Setting] = []
        seen: set[str] = set()
        for setting in source:
            if setting.origin is Origin.ENV or not self._dialect.knows(setting.key):
                if setting.key not in native_names() and setting.origin is not Origin.ENV:
                    self._problems.append(self._unknown(setting.key, setting.place))
                else:
                    found.append(setting)
                continue
            for name, value in self._dialect.flattened(setting.key, setting.value):
                self._note(name, value, setting, seen)
        return found

    def _note(self, name: str, value: object, setting: Setting, seen: set[str]) -> None:
        key = self._dialect.find(name)
        if key is None:
            self._problems.append(self._unknown(name, setting.place))
            return
        if name in seen:
            self._problems.append(f"{name} is given twice (in {setting.place})")
        seen.add(name)
        try:
            parsed = key.kind.parse(value)
        except ValueError as error:
            self._problems.append(f"{name} {error} (in {setting.place})")
            return
        self._given[name] = Setting(name, parsed, setting.origin, setting.place)

    def _unknown(self, name: str, place: str) -> str:
        advice = self._dialect.advice(name)
        text = f"{self._dialect.title} has no {name!r} (in {place})"
        return f"{text}: {advice}" if advice else text

    # -- what becomes of it ------------------------------------------------------------------------

    def _implied(self, table: HostTable) -> list[Setting]:
        if self._dialect.implied is None:
            return []
        by = self._dialect.implied_by
        outcome = self._dialect.implied(table)
        place = next((setting.place for setting in self._given.values()), self._dialect.name)
        self._rows.append(HostRow(by, "", tuple(outcome), place=place))
        origin = min(
            (setting.origin for setting in self._given.values()), default=Origin.FILE, key=_rank
        )
        return [Setting(name, value, origin, place, by) for name, value in outcome.items()]

    def _made(self, key: HostKey, name: str, table: HostTable) -> list[Setting]:
        """The settings that follow from a row, given or not."""
        given = self._given.get(name)
        value = key.default if given is None else given.value
        is_default = value == key.default
        lowest = min(
            (setting.origin for setting in self._given.values()), default=Origin.FILE, key=_rank
        )
        origin = lowest if given is None else given.origin
        place = f"default of {self._dialect.title}" if given is None else given.place
        shown = _shown(key, value)
        try:
            outcome = self._outcome(key, value, table, is_default=is_default)
        except ValueError as error:
            self._problems.append(f"{name} = {shown} (in {place}) {error}")
            return []
        if isinstance(outcome, str):
            if isinstance(key.fate, Refused) and not is_default:
                self._problems.append(f"{name} = {shown} (in {place}) is refused: {outcome}")
            told = isinstance(key.fate, Nothing) and not (is_default or key.silent)
            self._rows.append(HostRow(name, shown, (), outcome, place, told))
            return []
        training = {option: item for option, item in outcome.items() if option.startswith(TRAIN)}
        self._training.update(
            {option.removeprefix(TRAIN): item for option, item in training.items()}
        )
        options = [option for option in outcome if option not in training]
        self._rows.append(HostRow(name, shown, tuple(options), "", place))
        return [Setting(option, outcome[option], origin, place, name) for option in options]

    @staticmethod
    def _outcome(
        key: HostKey, value: Any, table: HostTable, *, is_default: bool
    ) -> Mapping[str, object] | str:
        match key.fate:
            case Becomes(option, convert):
                return {option: convert(value)} if value is not None else "nothing is set"
            case Computed(_, settings):
                return settings(table)
            case Nothing(reason) | Refused(reason):
                return reason if not is_default or isinstance(key.fate, Nothing) else "the default"


def _rank(origin: Origin) -> int:
    return list(Origin).index(origin)


def _shown(key: HostKey, value: Any) -> str:
    plain = "none" if value is None else key.kind.plain(value)
    return ", ".join(map(str, plain)) if isinstance(plain, tuple) else str(plain)
