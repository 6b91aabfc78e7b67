"""The effect of each option that was set: the program is compiled once more without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

from popc.compiler import Compiled, compile_program
from popc.frontend import LoadedModel
from popc.options import SCHEMA, Options
from popc.progress import UNWATCHED, Watch
from popc.request import CompileRequest
from popc.study.measures import Measures, measure
from popc_runtime.errors import PopcError
from popc_runtime.ground.frozen import frozen

__all__ = ["Effect", "explain_options"]

# These change how an archive is written, not what is compiled.
_OF_ARCHIVES: Final = (
    "compression",
    "cost_report",
    "hardware_instrumentations",
    "instrument_with_hardware_cycle_counter",
    "weights",
)
# These say what is refused, and why they change nothing.
_OF_COMPILING: Final = {
    "budget": "it says what the program may cost, not what it is",
    "enable_inplace_ambiguity_checking": "it found nothing to refuse",
    "verify_ir": "it checks what the compiler does, not the program",
}
_DEFAULTS: Final = {spec.name: spec.default for spec in SCHEMA}


@frozen
class Effect:
    """The effect of an option.

    Attributes:
        option, value, origin: The option as it was set.
        host: The settings of another system that it follows from; "" if there are none.
        before, after: Numbers of the program without and with it, of those that differ.
        added, removed: Ops by type.
        none: Why it has changed nothing; "" if it has.
        needed: Why the program cannot be compiled without it; "" if it can.
    """

    option: str
    value: str
    origin: str
    host: str = ""
    before: Mapping[str, int] = field(default_factory=dict[str, int])
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    added: Mapping[str, int] = field(default_factory=dict[str, int])
    removed: Mapping[str, int] = field(default_factory=dict[str, int])
    none: str = ""
    needed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain data."""
        found: dict[str, Any] = {"option": self.option, "value": self.value, "from": self.origin}
        if self.host:
            found["host"] = self.host
        found["has_effect"] = not self.none
        if self.none or self.needed:
            return {**found, "reason": self.none or self.needed}
        changes = {
            name: {"before": self.before[name], "after": self.after[name]} for name in self.before
        }
        return {**found, "changes": changes, "added": self.added, "removed": self.removed}


def explain_options(request: CompileRequest, watch: Watch = UNWATCHED) -> list[Effect]:
    """The effects of all options that do not come from the schema, by name.

    Without an option means with its default, while all others stay as they are.  ``watch`` is told
    about the program with all of them.

    Raises:
        PopcError: the program cannot be compiled with the options as they are.
    """
    return _Explainer(request, request.load(watch), watch).effects()


@frozen
class _Part:
    """An option, or an entry of one with several that have effects of their own.

    Attributes:
        option: The option.
        shown: Its value, or the entry.
        without: The value of the option without it.
    """

    option: str
    shown: str
    without: Any


def _parts(name: str, options: Options) -> list[_Part]:
    value = getattr(options, name)
    if name == "pattern_switches":
        return [
            _Part(name, f"{key}={'on' if item else 'off'}", value.without(key))
            for key, item in value.items()
        ]
    if name in ("annotate", "disabled_passes"):
        return [
            _Part(name, str(item), (*value[:index], *value[index + 1 :]))
            for index, item in enumerate(value)
        ]
    shown = next(row.value for row in options.settings() if row.name == name)
    return [_Part(name, str(shown), _DEFAULTS[name])]


class _Explainer:
    """Compiles and compares."""

    def __init__(self, request: CompileRequest, loaded: LoadedModel, watch: Watch) -> None:
        self._request = request
        self._loaded = loaded
        self._watch = watch

    def effects(self) -> list[Effect]:
        """See `explain_options`."""
        options = self._request.options
        compiled = compile_program(self._request, self._loaded, self._watch)
        plain = replace(options, verify_ir=False)  # takes time, and changes nothing
        compiled = compiled.with_options(plain)
        after = measure(compiled)
        given = [name for name in _DEFAULTS if self._request.is_set(name)]
        parts = [part for name in given for part in _parts(name, options)]
        effects = [self._effect(part, compiled, after) for part in parts]
        return [*effects, *_without_options(options)]

    def _effect(self, part: _Part, compiled: Compiled, after: Measures) -> Effect:
        given, name = self._request.options, part.option
        host = given.foreign.keys.get(name, "")
        effect = Effect(name, part.shown, given.origin(name).value, host=host)
        if getattr(given, name) == _DEFAULTS[name]:
            return replace(effect, none="this is the default")
        if name in _OF_COMPILING:
            return replace(effect, none=_OF_COMPILING[name])
        without = replace(compiled.planned.options, **{name: part.without})
        try:
            before = measure(self._compiled(name, without, compiled))
        except PopcError as error:
            return replace(effect, needed=_reason(error))
        if before.digest == after.digest and before.numbers == after.numbers:
            return replace(effect, none="the program is the same without it")
        return _compared(effect, before, after)

    def _compiled(self, name: str, without: Options, compiled: Compiled) -> Compiled:
        """The program without an option; ``compiled`` is the one with it."""
        if name in _OF_ARCHIVES:
            return compiled.with_options(without)
        return compile_program(self._request.with_options(without), self._loaded)


def _without_options(options: Options) -> list[Effect]:
    """The settings of another system from which no option follows, and why."""
    return [
        Effect(row.key, row.value, row.place, none=row.reason)
        for row in options.foreign.rows
        if row.reason
    ]


def _reason(error: PopcError) -> str:
    return "; ".join([error.message, *error.details])


def _compared(effect: Effect, before: Measures, after: Measures) -> Effect:
    changed = [name for name, value in before.numbers.items() if after.numbers[name] != value]
    return replace(
        effect,
        before={name: before.numbers[name] for name in changed},
        after={name: after.numbers[name] for name in changed},
        added=_more(after.op_types, before.op_types),
        removed=_more(before.op_types, after.op_types),
    )


def _more(these: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """By how much each number is larger in ``these``."""
    return {
        name: count - others.get(name, 0)
        for name, count in sorted(these.items())
        if count > others.get(name, 0)
    }
