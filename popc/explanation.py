"""What each option that was set has changed: the program is compiled once more without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from popc.api import TrainingSource, bind_training, make_bindings, make_training
from popc.compiler import Compilation, run_stages
from popc.frontend import LoadedModel, ModelSource, load_model
from popc.measures import Measures, measure
from popc.options import SCHEMA, Options
from popc.progress import OnProgress
from popc_runtime.errors import PopcError
from popc_runtime.format import Origin

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


@dataclass(frozen=True, slots=True)
class Effect:
    """What an option has changed.

    Attributes:
        option, value, origin: The option as it was set.
        before, after: Numbers of the program without and with it, of those that differ.
        added, removed: Ops by type.
        none: Why it has changed nothing; "" if it has.
        needed: Why the program cannot be compiled without it; "" if it can.
    """

    option: str
    value: str
    origin: str
    before: Mapping[str, int] = field(default_factory=dict[str, int])
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    added: Mapping[str, int] = field(default_factory=dict[str, int])
    removed: Mapping[str, int] = field(default_factory=dict[str, int])
    none: str = ""
    needed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        found: dict[str, Any] = {"option": self.option, "value": self.value, "from": self.origin}
        found["has_effect"] = not self.none
        if self.none or self.needed:
            return {**found, "reason": self.none or self.needed}
        changes = {
            name: {"before": self.before[name], "after": self.after[name]} for name in self.before
        }
        return {**found, "changes": changes, "added": self.added, "removed": self.removed}


def explain_options(
    model: ModelSource,
    *,
    options: Options,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    train: TrainingSource | None = None,
    on_progress: OnProgress | None = None,
) -> list[Effect]:
    """The effects of all options that do not come from the schema, by name.

    Arguments are those of `popc.compile`.  Without an option means with its default, while all
    others stay as they are.  ``on_progress`` is told about the program with all of them.

    Raises:
        PopcError: the program cannot be compiled with the options as they are.
    """
    loaded, training = load_model(model), make_training(train)

    def compile_with(changed: Options) -> Compilation:
        bindings = make_bindings(changed, shapes, dims, bind, outputs)
        bindings = bind_training(bindings, loaded, training, changed)
        told = on_progress if changed == options else None
        return run_stages(loaded, bindings, changed, training=training, on_progress=told)

    explainer = _Explainer(loaded, compile_with)
    return explainer.effects(options)


@dataclass(frozen=True, slots=True)
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
            _Part(name, f"{key}={'on' if one else 'off'}", value.without(key))
            for key, one in value.items()
        ]
    if name in ("annotate", "disabled_passes"):
        return [
            _Part(name, str(one), (*value[:index], *value[index + 1 :]))
            for index, one in enumerate(value)
        ]
    shown = next(row.value for row in options.to_manifest() if row.name == name)
    return [_Part(name, str(shown), _DEFAULTS[name])]


class _Explainer:
    """Compiles and compares."""

    def __init__(
        self,
        loaded: LoadedModel,
        compile_with: Callable[[Options], Compilation],
    ) -> None:
        self._loaded = loaded
        self._compile = compile_with

    def effects(self, options: Options) -> list[Effect]:
        """See `explain_options`."""
        given = [name for name in _DEFAULTS if options.origin(name) is not Origin.DEFAULT]
        done = self._compile(options)
        plain = replace(options, verify_ir=False)  # takes time, and changes nothing
        after = measure(self._loaded, done, plain)
        parts = [part for name in given for part in _parts(name, options)]
        return [self._effect(part, options, plain, done, after) for part in parts]

    def _effect(
        self, part: _Part, given: Options, options: Options, done: Compilation, after: Measures
    ) -> Effect:
        name = part.option
        effect = Effect(name, part.shown, given.origin(name).value)
        if getattr(given, name) == _DEFAULTS[name]:
            return replace(effect, none="this is the default")
        if name in _OF_COMPILING:
            return replace(effect, none=_OF_COMPILING[name])
        without = replace(options, **{name: part.without})
        try:
            other = done if name in _OF_ARCHIVES else self._compile(without)
            before = measure(self._loaded, other, without)
        except PopcError as error:
            return replace(effect, needed=_reason(error))
        if before.digest == after.digest and before.numbers == after.numbers:
            return replace(effect, none="the program is the same without it")
        return _compared(effect, before, after)


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
