"""Annotations: what PopART's users write at nodes of a model, and the table of options for it.

A node has PopART's attributes, such as ``__schedule_priority``.  An entry of ``[[annotate]]``
selects nodes and says the same without a change of the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, ClassVar, Final, TypeAlias

from popc.options.dialects.popart_patterns import names_meant, why_no_switch
from popc.options.kinds import Kind, Known
from popc.options.locations import parse_settled_location, words_of
from popc.options.suggest import did_you_mean
from popc_runtime.format import OptionValue
from popc_runtime.ground.frozen import frozen

__all__ = [
    "ANNOTATIONS",
    "CUTS",
    "Annotation",
    "AnnotationValue",
    "Rule",
    "RulesKind",
    "excluded_names",
    "fits",
    "names_without_switch",
    "parse_rules",
    "unknown_patterns",
]

AnnotationValue: TypeAlias = "int | float | str | tuple[str, ...] | tuple[float, ...]"

_SELECTORS: Final = ("nodes", "op_type", "output")
# Selectors of ops by where they have been put, and what may be said of these.
_PLACES: Final = ("on_virtual_graph", "on_pipeline_stage", "in_pass")
_OF_PLACES: Final = (
    "available_memory",
    "partials_type",
    "schedule_priority",
    "stochastic_rounding",
)
PASSES: Final = ("forward", "backward", "update")


class _Given(Kind[AnnotationValue]):
    """The value of a node's attribute as it is, for attributes have types."""

    def __init__(self, what: str, accept: Callable[[object], AnnotationValue | None]) -> None:
        """``accept`` gives ``None`` for what is no ``what``."""
        self._what = what
        self._accept = accept

    def parse(self, value: object) -> AnnotationValue:
        """``value``, if it is what an attribute may hold."""
        found = self._accept(value)
        if found is None:
            raise ValueError(f"is {value!r}, but must be {self._what}")
        return found


class _Words(Kind[AnnotationValue]):
    """Words of ours, each with the value of the attribute."""

    def __init__(self, **meanings: int | str) -> None:
        self.meanings: Final[Mapping[str, int | str]] = meanings

    def parse(self, value: object) -> AnnotationValue:
        """The value that a word stands for."""
        if isinstance(value, str) and value.lower() in self.meanings:
            return self.meanings[value.lower()]
        raise ValueError(f"is {value!r}, but must be one of {', '.join(self.meanings)}")


class _Location(Kind[AnnotationValue]):
    """The place of a tensor, in words."""

    def parse(self, value: object) -> AnnotationValue:
        """The value that `parse_location` reads."""
        return words_of(parse_settled_location(value))


@frozen
class Annotation:
    """One thing that can be said of a node.

    Attributes:
        attribute: PopART's name of the node's attribute.
        kind: What is said, as the attribute has it.
        useless: Why it has no effect here; "" if it has one.
    """

    attribute: str
    kind: Kind[AnnotationValue]
    useless: str = ""


def fits(patterns: str | tuple[str, ...], name: str) -> bool:
    """True if ``name`` is what a selector names, or one of them; an empty one names anything."""
    several = (patterns,) if isinstance(patterns, str) else patterns
    return any(pattern in ("", name) or fnmatchcase(name, pattern) for pattern in several)


def excluded_names(names: Iterable[str], passes: Sequence[str]) -> tuple[str, ...]:
    """Our names for the passes and rules that ``exclude_patterns`` names, in order.

    `IN_PLACE` excludes no pass: it is left out, as are patterns that are always in force.

    Args:
        names: As the user writes them: ours, or PopART's.
        passes: What leaves ops as they are; anything if this is empty.

    Raises:
        ValueError: a name is unknown.
    """
    names = list(names)
    for name, advice in unknown_patterns(names, passes):
        raise ValueError(f"contains {name!r}, which is not a pass that can be excluded: {advice}")
    said = (name for name in names if name not in IN_PLACE and not why_no_switch(name))
    return tuple(sorted({meant for name in said for meant in names_meant(name)}))


def unknown_patterns(names: Iterable[str], passes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names that mean nothing in ``passes``, each with advice; none if that is empty."""
    for name in names if passes else ():
        if name in IN_PLACE or why_no_switch(name):
            continue
        if any(meant not in passes for meant in names_meant(name)):
            yield name, did_you_mean(name, passes) or f"choose from {', '.join(passes)}"


def names_without_switch(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The names of patterns that cannot be excluded, each with the reason."""
    for name in names:
        if name not in IN_PLACE and (reason := why_no_switch(name)):
            yield name, reason


def _float(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(str(value)) if number and isfinite(float(str(value))) else None


def _int(value: object) -> int | None:
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if isinstance(value, int) and number and value >= 0 else None


def _flag(value: object) -> int | None:
    return int(value) if isinstance(value, int) and value in (0, 1) else None


def _floats(value: object) -> tuple[float, ...] | None:
    numbers = [value] if isinstance(value, int | float) else value
    if not isinstance(numbers, Sequence):
        return None
    found = [_float(number) for number in numbers]
    known = [rule for rule in found if rule is not None]
    return tuple(known) if len(known) == len(found) else None


def _names(value: object) -> tuple[str, ...] | None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(label, str) for label in names):
        return None
    return tuple(names)


# PopART's names for the rule that results overwrite operands.
IN_PLACE: Final = ("InPlace", "Inplace")

_FLOAT: Final = _Given("a number", _float)
_INT: Final = _Given("a whole number", _int)
_FLAG: Final = _Given("true or false", _flag)
_FLOATS: Final = _Given("a list of numbers", _floats)
_NAMES: Final = _Given("a list of names", _names)

_NO_CONTEXTS: Final = "which loop an op belongs to follows from what it reads"
_OF_STREAMS: Final = "inputs and outputs have it, not nodes: see the option exchange_strategies"
_NO_TILES: Final = "on which tile the work of a convolution begins is not modelled"

# What is cut of [..., m, k] times [..., k, n], by PopART's names and TensorFlow's.
CUTS: Final = _Words(
    input_channels="input_channels",
    reducing_dim="reducing_dim",
    output_channels="output_channels",
    none="none",
    a_columns="input_channels",
    a_rows_b_columns="reducing_dim",
    b_rows="output_channels",
)

# By our names: what has an effect, and what the machinery for is missing.
ANNOTATIONS: Final[dict[str, Annotation]] = {
    "exclude_patterns": Annotation("__exclude_patterns", _NAMES),
    "partials_type": Annotation("__partials_type", _Words(float="float", half="half")),
    "recompute": Annotation(
        "__recompute_output_in_backward_pass", _Words(checkpoint=1, recompute=2)
    ),
    "schedule_priority": Annotation("__schedule_priority", _FLOAT),
    "available_memory": Annotation("__available_memory", _FLOATS),
    "enable_conv_dithering": Annotation("__enable_conv_dithering", _INT, useless=_NO_TILES),
    "exchange_strategy": Annotation("__exchange_strategy", _INT, useless=_OF_STREAMS),
    "execution_context": Annotation("__execution_context", _INT, useless=_NO_CONTEXTS),
    "execution_phase": Annotation("__execution_phase", _INT),
    "inplace_op_names": Annotation("__inplace_op_names", _NAMES),
    "inplace_op_priorities": Annotation("__inplace_op_priorities", _FLOATS),
    "outline": Annotation("__outline", _NAMES),
    "output_tensor_location": Annotation("__output_tensor_location", _Location()),
    "output_type": Annotation("__output_type", _Words(float="FLOAT", half="HALF", float16="HALF")),
    "pipeline_stage": Annotation("__pipeline_stage", _INT),
    "serialize_lookup_factor": Annotation("__serialize_lookup_factor", _INT),
    "serialize_matmul_factor": Annotation("__serialize_matmul_factor", _INT),
    "serialize_matmul_keep_precision": Annotation("__serialize_matmul_precision", _FLAG),
    "serialize_matmul_mode": Annotation("__serialize_matmul_mode", CUTS),
    "stochastic_rounding": Annotation("__stochastic_rounding", _FLAG),
    "tile_set": Annotation("__tile_set", _Words(compute=0, io=1)),
    "virtual_graph": Annotation("__ipu_number", _INT),
}
_OUR_NAMES: Final = {
    spelling: name
    for name, annotation in ANNOTATIONS.items()
    for spelling in (name, annotation.attribute, annotation.attribute.removeprefix("__"))
}


@frozen
class Rule:
    """An entry of ``[[annotate]]``: nodes that fit all selectors that are not empty.

    Attributes:
        nodes: Name or pattern of nodes, or several of which one is enough.
        op_type: ONNX operator, or a pattern.
        output: Name or pattern of a tensor that the node computes.
        on_virtual_graph, on_pipeline_stage: The chip, and the stage of the forward pass, that an op
            is on or belongs to; ``None`` if any.
        in_pass: One of `PASSES`; "" if any.
        settings: What is said of them, by our names, as their attributes have it.
    """

    nodes: str | tuple[str, ...] = ""
    op_type: str = ""
    output: str = ""
    on_virtual_graph: int | None = None
    on_pipeline_stage: int | None = None
    in_pass: str = ""
    settings: tuple[tuple[str, AnnotationValue], ...] = ()

    @property
    def is_by_place(self) -> bool:
        """True if the rule is about ops of a place, rather than about nodes of the model."""
        places = (self.on_virtual_graph, self.on_pipeline_stage)
        return bool(self.in_pass) or any(place is not None for place in places)

    def __str__(self) -> str:
        given = {key: getattr(self, key) for key in (*_SELECTORS, *_PLACES)}
        selectors = {key: value for key, value in given.items() if value not in ("", None)}
        return ", ".join(f"{key} = {json.dumps(value)}" for key, value in
                         (*selectors.items(), *self.settings))  # fmt: skip


def parse_rules(value: object, passes: Sequence[str]) -> tuple[Rule, ...]:
    """The entries of ``[[annotate]]``; text is JSON.

    Args:
        value: A list of tables.
        passes: What ``exclude_patterns`` may name.

    Raises:
        ValueError: lists everything that is wrong, as what follows the name of the option.
    """
    try:
        entries = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        entries = None
    if not isinstance(entries, list | tuple):
        raise ValueError(f"is {value!r}, but must be a list of tables: [[annotate]] in a file")
    problems: list[str] = []
    rules = [
        entry if isinstance(entry, Rule) else _rule(number, entry, passes, problems)
        for number, entry in enumerate(entries)
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(rules)


def _rule(number: int, entry: object, passes: Sequence[str], problems: list[str]) -> Rule:
    where = f"[{number}]"
    if not isinstance(entry, Mapping):
        problems.append(f"{where} is {entry!r}, but must be a table")
        return Rule()
    selectors: dict[str, Any] = {}
    settings: dict[str, AnnotationValue] = {}
    for key, value in entry.items():
        if key in _SELECTORS:
            several = key == "nodes" and isinstance(value, list | tuple)
            selectors[key] = tuple(map(str, value)) if several else str(value)
            continue
        try:
            if key in _PLACES:
                selectors[key] = _place(key, value)
                continue
            settings[_known(key)] = _setting(_known(key), value, passes)
        except ValueError as error:
            problems.append(f"{where}.{key} {error}")
    rule = Rule(**selectors, settings=tuple(sorted(settings.items())))
    if not any(selectors.values()) and not rule.is_by_place:
        said = ", ".join((*_SELECTORS, *_PLACES))
        problems.append(f"{where} has no selector: give one of {said}")
    if not settings and not problems:
        problems.append(f"{where} has no annotation for the nodes that it selects")
    if rule.is_by_place:
        problems += [
            f"{where}.{name} is for nodes, but {', '.join(key for key in _PLACES if key in entry)} "
            f"selects ops by place, of which {', '.join(_OF_PLACES)} can be said"
            for name in settings
            if name not in _OF_PLACES
        ]
        memory = settings.get("available_memory")
        if memory is not None and not 0 < _only(memory) <= 1:
            problems.append(f"{where}.available_memory is {memory}, but must be above 0, at most 1")
    return rule


def _place(key: str, value: object) -> int | str:
    """A number of a chip or stage, or a word."""
    if key == "in_pass":
        if value not in PASSES:
            raise ValueError(f"is {value!r}, but must be one of {', '.join(PASSES)}")
        return str(value)
    number = _int(value)
    if number is None:
        raise ValueError(f"is {value!r}, but must be a whole number")
    return number


def _only(value: AnnotationValue) -> float:
    """The one number of a list; 0, which is none of those allowed, if there are others."""
    numbers = value if isinstance(value, tuple) else (value,)
    return float(numbers[0]) if len(numbers) == 1 else 0.0


def _known(key: str) -> str:
    if key not in _OUR_NAMES:
        advice = did_you_mean(key, [*_SELECTORS, *_PLACES, *ANNOTATIONS])
        raise ValueError("is not an annotation" + (f": {advice}" if advice else ""))
    return _OUR_NAMES[key]


def _setting(name: str, value: Any, passes: Sequence[str]) -> AnnotationValue:
    annotation = ANNOTATIONS[name]
    if annotation.useless:
        raise ValueError(f"would have no effect: {annotation.useless}")
    parsed = annotation.kind.parse(value)
    if name == "exclude_patterns":
        assert isinstance(parsed, tuple), "a list of names"
        names = [str(item) for item in parsed]
        for unheard, reason in names_without_switch(names):
            raise ValueError(f"contains {unheard!r}, which cannot be excluded: {reason}")
        kept = [item for item in names if item in IN_PLACE]
        return (*excluded_names(names, passes), *kept)
    return parsed


class RulesKind(Known[tuple[Rule, ...]]):
    """Entries of ``[[annotate]]``; the known names are those that ``exclude_patterns`` may name."""

    called: ClassVar[str] = "rules"

    @property
    def choices(self) -> tuple[str, ...]:
        """None: the entries are made of more than names."""
        return ()

    def parse(self, value: object) -> tuple[Rule, ...]:
        """A list of tables; text is JSON."""
        return parse_rules(value, self.known)

    def plain(self, value: tuple[Rule, ...]) -> OptionValue:
        """The entries as text."""
        return tuple(map(str, value))
