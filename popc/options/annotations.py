"""Annotations: what PopART's users write at nodes of a model, and the table of options for it.

A node has PopART's attributes, such as ``__schedule_priority``.  An entry of ``[[annotate]]``
selects nodes and says the same without a change of the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Final, TypeAlias

from popc.options.dialects.popart_patterns import names_meant, why_no_switch
from popc.options.kinds import Known
from popc.options.locations import parse_location, words_of
from popc.options.suggest import did_you_mean
from popc_runtime.format import OptionValue

__all__ = [
    "ANNOTATIONS",
    "Annotation",
    "AnnotationValue",
    "Rule",
    "RulesKind",
    "excluded_names",
    "parse_rules",
]

AnnotationValue: TypeAlias = "int | float | str | tuple[str, ...] | tuple[float, ...]"

_SELECTORS: Final = ("nodes", "op_type", "output")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One thing that can be said of a node.

    Attributes:
        attribute: PopART's name of the node's attribute.
        kind: "float", "floats", "int", "bool", "names", or "choice".
        choices: Of a "choice", the values of the attribute by our names.
        useless: Why it has no effect here; "" if it has one.
    """

    attribute: str
    kind: str
    choices: tuple[tuple[str, int | str], ...] = ()
    useless: str = ""

    def parse(self, value: object) -> AnnotationValue:
        """``value`` as the attribute has it.

        Raises:
            ValueError: it is of another kind.
        """
        chosen = dict(self.choices)
        if self.kind == "choice":
            if isinstance(value, str) and value.lower() in chosen:
                return chosen[value.lower()]
            raise ValueError(f"is {value!r}, but must be one of {', '.join(chosen)}")
        if self.kind in _SEVERAL:
            return _SEVERAL[self.kind](value)
        if self.kind == "bool" and isinstance(value, bool | int) and value in (0, 1):
            return int(value)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "float" and number and isfinite(float(str(value))):
            return float(str(value))
        if self.kind == "int" and isinstance(value, int) and number and value >= 0:
            return value
        what = {"int": "a whole number", "bool": "true or false"}.get(self.kind, "a number")
        raise ValueError(f"is {value!r}, but must be {what}")


def excluded_names(names: Iterable[str], passes: Sequence[str]) -> tuple[str, ...]:
    """Our names for the passes and rules that ``exclude_patterns`` names, in order.

    Args:
        names: As the user writes them: ours, or PopART's.
        passes: What leaves ops as they are; anything if this is empty.

    Raises:
        ValueError: a name is unknown, or what it names cannot leave ops as they are.
    """
    found: set[str] = set()
    for name in names:
        reason = why_no_switch(name)
        if reason:
            raise ValueError(f"contains {name!r}, which cannot be excluded: {reason}")
        for meant in names_meant(name):
            if passes and meant not in passes:
                advice = did_you_mean(name, passes) or f"choose from {', '.join(passes)}"
                raise ValueError(f"contains {name!r}, which is no pass that skips ops: {advice}")
            found.add(meant)
    return tuple(sorted(found))


def _floats(value: object) -> tuple[float, ...]:
    numbers = [value] if isinstance(value, int | float) else value
    if not isinstance(numbers, Sequence) or not all(
        isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one)
        for one in numbers
    ):
        raise ValueError(f"is {value!r}, but must be a list of numbers")
    return tuple(float(one) for one in numbers)


def _names(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"is {value!r}, but must be a list of names")
    return tuple(names)


_NO_CONTEXTS: Final = "which loop an op belongs to follows from what it reads"
_OF_STREAMS: Final = "inputs and outputs have it, not nodes: see the option exchange_strategies"
_OF_NODES: Final = "the option available_memory_proportions says it of nodes, by name or pattern"
_NO_TILES: Final = "on which tile the work of a convolution begins is not modelled"


def _location(value: object) -> str:
    return words_of(parse_location(value))


# Kinds whose values consist of several.
_SEVERAL: Final[dict[str, Callable[[object], AnnotationValue]]] = {
    "floats": _floats,
    "location": _location,
    "names": _names,
}

# What is cut of [..., m, k] times [..., k, n], by PopART's names and TensorFlow's.
_CUTS: Final = (
    ("input_channels", "input_channels"),
    ("reducing_dim", "reducing_dim"),
    ("output_channels", "output_channels"),
    ("none", "none"),
    ("a_columns", "input_channels"),
    ("a_rows_b_columns", "reducing_dim"),
    ("b_rows", "output_channels"),
)

# By our names: what has an effect, and what the machinery for is missing.
ANNOTATIONS: Final[dict[str, Annotation]] = {
    "exclude_patterns": Annotation("__exclude_patterns", "names"),
    "partials_type": Annotation(
        "__partials_type", "choice", (("float", "float"), ("half", "half"))
    ),
    "recompute": Annotation(
        "__recompute_output_in_backward_pass", "choice", (("checkpoint", 1), ("recompute", 2))
    ),
    "schedule_priority": Annotation("__schedule_priority", "float"),
    "available_memory": Annotation("__available_memory", "float", useless=_OF_NODES),
    "enable_conv_dithering": Annotation("__enable_conv_dithering", "int", useless=_NO_TILES),
    "exchange_strategy": Annotation("__exchange_strategy", "int", useless=_OF_STREAMS),
    "execution_context": Annotation("__execution_context", "int", useless=_NO_CONTEXTS),
    "execution_phase": Annotation("__execution_phase", "int"),
    "inplace_op_names": Annotation("__inplace_op_names", "names"),
    "inplace_op_priorities": Annotation("__inplace_op_priorities", "floats"),
    "outline": Annotation("__outline", "names"),
    "output_tensor_location": Annotation("__output_tensor_location", "location"),
    "output_type": Annotation(
        "__output_type", "choice", (("float", "FLOAT"), ("half", "HALF"), ("float16", "HALF"))
    ),
    "pipeline_stage": Annotation("__pipeline_stage", "int"),
    "serialize_matmul_factor": Annotation("__serialize_matmul_factor", "int"),
    "serialize_matmul_keep_precision": Annotation("__serialize_matmul_precision", "bool"),
    "serialize_matmul_mode": Annotation("__serialize_matmul_mode", "choice", _CUTS),
    "tile_set": Annotation("__tile_set", "choice", (("compute", 0), ("io", 1))),
    "virtual_graph": Annotation("__ipu_number", "int"),
}
_NAMES: Final = {
    spelling: name
    for name, one in ANNOTATIONS.items()
    for spelling in (name, one.attribute, one.attribute.removeprefix("__"))
}


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of ``[[annotate]]``: nodes that fit all selectors that are not empty.

    Attributes:
        nodes: Name or pattern of nodes.
        op_type: ONNX operator, or a pattern.
        output: Name or pattern of a tensor that the node computes.
        settings: What is said of them, by our names, as their attributes have it.
    """

    nodes: str = ""
    op_type: str = ""
    output: str = ""
    settings: tuple[tuple[str, AnnotationValue], ...] = ()

    def __str__(self) -> str:
        selectors = {key: getattr(self, key) for key in _SELECTORS if getattr(self, key)}
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
        one if isinstance(one, Rule) else _rule(number, one, passes, problems)
        for number, one in enumerate(entries)
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(rules)


def _rule(number: int, entry: object, passes: Sequence[str], problems: list[str]) -> Rule:
    where = f"[{number}]"
    if not isinstance(entry, Mapping):
        problems.append(f"{where} is {entry!r}, but must be a table")
        return Rule()
    selectors: dict[str, str] = {}
    settings: dict[str, AnnotationValue] = {}
    for key, value in entry.items():
        if key in _SELECTORS:
            selectors[key] = str(value)
            continue
        try:
            settings[_known(key)] = _setting(_known(key), value, passes)
        except ValueError as error:
            problems.append(f"{where}.{key} {error}")
    if not any(selectors.values()):
        problems.append(f"{where} selects no nodes: give one of {', '.join(_SELECTORS)}")
    if len(entry) == len(selectors):
        problems.append(f"{where} says nothing of the nodes that it selects")
    return Rule(**selectors, settings=tuple(sorted(settings.items())))


def _known(key: str) -> str:
    if key not in _NAMES:
        advice = did_you_mean(key, [*_SELECTORS, *ANNOTATIONS])
        raise ValueError("is no annotation" + (f": {advice}" if advice else ""))
    return _NAMES[key]


def _setting(name: str, value: Any, passes: Sequence[str]) -> AnnotationValue:
    annotation = ANNOTATIONS[name]
    if annotation.useless:
        raise ValueError(f"would have no effect: {annotation.useless}")
    parsed = annotation.parse(value)
    if name == "exclude_patterns":
        return excluded_names(_names(parsed), passes)
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
