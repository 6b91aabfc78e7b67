"""Annotations of the nodes of a model, by their attributes or by the user's rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from popc.frontend import messages as onnx
from popc.frontend.names import did_you_mean, listed, shown
from popc.frontend.walk import all_nodes, attributed_nodes, node_name
from popc.ir import Op, OpSettings
from popc.options.annotations import (
    ANNOTATIONS,
    Rule,
    excluded_names,
    fits,
    names_without_switch,
    unknown_patterns,
)
from popc.options.locations import parse_location, words_of
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["Annotations", "annotate_ops", "is_annotated", "useless_annotations"]

_PREFIX: Final = "__"
_BY_ATTRIBUTE: Final = {annotation.attribute: annotation for annotation in ANNOTATIONS.values()}
# Attributes that rules of operators read, and that by which PopART's tools find a node again.
_OF_OPERATORS: Final = (
    "__collectiveCommGroup",
    "__collectiveOperator",
    "__comm_group_size",
    "__comm_group_type",
    "__debug_info_id",
    "__labels_outside",
    "__op_version",
    "__replicated_stream_mode",
    "__variable_settings",
)


@frozen
class Annotations:
    """The user's rules.

    Attributes:
        rules: They are applied in order; later ones win, and all win over the model.
        passes: What ``exclude_patterns`` may name; anything if this is empty.  Rules may name
            nothing else; names in a model, which come from other systems, have no effect then.
        ignored: Annotations that other options leave without effect, with the reason.
    """

    rules: tuple[Rule, ...] = ()
    passes: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()

    def applied(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """``nodes``, with the attributes that the rules give them.

        Raises:
            OptionError: lists rules that select no node.
            ModelError: lists attributes that are no annotations, or are of the wrong kind.
        """
        result = list(nodes)
        if self.rules:
            self._require_matches(nodes)
            for index, node in enumerate(nodes):
                if any(_selects(rule, inner) for rule in self.rules for inner in all_nodes([node])):
                    result[index] = self._annotated(node)
        problems = list(self._problems(result))
        if problems:
            raise ModelError("annotations of nodes are wrong", details=tuple(problems))
        return result

    def _annotated(self, node: onnx.NodeProto) -> onnx.NodeProto:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for inner in all_nodes([copy]):
            for rule in self.rules:
                if _selects(rule, inner):
                    _annotate(inner, rule)
        return copy

    def _require_matches(self, nodes: Sequence[onnx.NodeProto]) -> None:

        known = list(all_nodes(nodes))
        problems = [
            f"[{number}] selects no node{_advice(rule, known)}"
            for number, rule in enumerate(self.rules)
            if not any(_selects(rule, node) for node in known)
        ]
        from popc.frontend.annotated_ops import operators_meant

        problems += [
            f"[{number}].{name} is for {', '.join(operators)}, but none is selected"
            for number, rule in enumerate(self.rules)
            for name, _ in rule.settings
            if (operators := operators_meant(name))
            and not any(_selects(rule, node) and node.op_type in operators for node in known)
        ]
        if problems:
            raise OptionError(
                "annotate names nodes that the program does not need, or that do not exist",
                subject="annotate",
                details=tuple(f"annotate{problem}" for problem in problems),
            )

    def _problems(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:

        known = [*_BY_ATTRIBUTE, *_OF_OPERATORS]
        from popc.frontend.annotated_ops import annotation_problems

        for node in attributed_nodes(nodes):
            for attribute in _annotations(node):
                where = f"{shown(node_name(node))}: {attribute.name}"
                if attribute.name not in known:
                    yield f"{where} is not an annotation{did_you_mean(attribute.name, known)}"
                elif attribute.name == "__schedule_priority" and not _is_number(attribute):
                    yield f"{where} must be a number"
            yield from (
                f"{shown(node_name(node))}: {problem}" for problem in annotation_problems(node)
            )


def useless_annotations(nodes: Iterable[onnx.NodeProto], annotations: Annotations) -> list[str]:
    """A sentence for each kind of annotation that has no effect."""
    reasons = {
        annotation.attribute: annotation.useless
        for annotation in ANNOTATIONS.values()
        if annotation.useless
    }
    reasons |= {ANNOTATIONS[name].attribute: reason for name, reason in annotations.ignored}
    found: dict[str, list[str]] = defaultdict(list)
    kept: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in attributed_nodes(nodes):
        for attribute in _annotations(node):
            if attribute.name in reasons:
                found[attribute.name].append(node_name(node))
            elif attribute.name == "__exclude_patterns":
                patterns = _texts(attribute)
                for pattern, reason in names_without_switch(patterns):
                    kept[pattern, reason].append(node_name(node))
                for pattern, advice in unknown_patterns(patterns, annotations.passes):
                    kept[pattern, f"there is none of this name: {advice}"].append(node_name(node))
    notes = [
        f"{name} has no effect ({reasons[name]}): {listed(names)}"
        for name, names in sorted(found.items())
    ]
    notes += [
        f"__exclude_patterns: {shown(pattern)} cannot be excluded ({reason}): {listed(names)}"
        for (pattern, reason), names in sorted(kept.items())
    ]
    return notes


def _advice(rule: Rule, nodes: Sequence[onnx.NodeProto]) -> str:
    """The nearest name for the first selector that fits no node by itself."""
    choices = (
        (rule.nodes, [node_name(node) for node in nodes]),
        (rule.op_type, [node.op_type for node in nodes]),
        (rule.output, [name for node in nodes for name in node.output if name]),
    )
    for pattern, names in choices:
        if pattern and not any(fits(pattern, name) for name in names):
            several = (pattern,) if isinstance(pattern, str) else pattern
            said = " or ".join(f"{shown(word)!r}" for word in several)
            return f": {said} matches none{did_you_mean(several[0], names)}"
    return ""


def _selects(rule: Rule, node: onnx.NodeProto) -> bool:
    return (
        any(fits(rule.nodes, name) for name in (node.name, node_name(node)))
        and fits(rule.op_type, node.op_type)
        and (not rule.output or any(fits(rule.output, name) for name in node.output))
    )


def _annotate(node: onnx.NodeProto, rule: Rule) -> None:
    from onnx import helper

    from popc.frontend.annotated_ops import operators_meant

    for name, value in rule.settings:
        if node.op_type not in (operators_meant(name) or (node.op_type,)):
            continue  # of all nodes that fit the selectors, others are meant
        attribute = ANNOTATIONS[name].attribute
        kept = [entry for entry in node.attribute if entry.name != attribute]
        del node.attribute[:]
        kind = onnx.AttributeProto.STRINGS if value == () else None
        node.attribute.extend([*kept, helper.make_attribute(attribute, value, attr_type=kind)])


def _annotations(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    return (attribute for attribute in node.attribute if attribute.name.startswith(_PREFIX))


def _is_number(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (attribute.FLOAT, attribute.INT)


def _texts(attribute: onnx.AttributeProto) -> tuple[str, ...]:
    values = attribute.strings or ([attribute.s] if attribute.s else [])
    return tuple(value.decode("utf-8", errors="replace") for value in values)


# -- settings of ops -------------------------------------------------------------------------------


def is_annotated(node: onnx.NodeProto) -> bool:
    """True if `annotate_ops` has anything to do."""
    return any(True for _ in _annotations(node))


def annotate_ops(node: onnx.NodeProto, ops: Iterable[Op]) -> None:
    """Tell the ops of ``node`` what it is annotated with; those inside it may have their own."""
    numbers: Counter[str] = Counter()
    from popc.frontend.annotated_ops import with_annotations

    for op in ops:
        settings = _with_annotations(op.settings, node)
        op.settings = with_annotations(settings, op, node, numbers[op.op_type])
        numbers[op.op_type] += 1


def _with_annotations(settings: OpSettings, node: onnx.NodeProto) -> OpSettings:
    for attribute in _annotations(node):
        if attribute.name == "__schedule_priority" and settings.schedule_priority == 0:
            number = attribute.f if attribute.type == attribute.FLOAT else float(attribute.i)
            settings = replace(settings, schedule_priority=number)
        elif attribute.name == "__exclude_patterns" and not settings.exclude_patterns:
            names = _texts(attribute)
            settings = replace(settings, exclude_patterns=excluded_names(names, ()))
        elif attribute.name == "__outline" and not settings.outline:
            settings = replace(settings, outline=_texts(attribute))
        elif attribute.name == "__stochastic_rounding" and settings.stochastic_rounding is None:
            settings = replace(settings, stochastic_rounding=bool(attribute.i))
        elif attribute.name == "__tile_set" and settings.tile_set == "compute" and attribute.i:
            settings = replace(settings, tile_set="io")
        elif attribute.name == "__output_tensor_location" and not settings.location:
            settings = replace(settings, location=_location(attribute))
        elif attribute.name in _PLACES:
            settings = _placed(settings, _PLACES[attribute.name], attribute.i)
    return settings


def _location(attribute: onnx.AttributeProto) -> str:
    """In words; PopART lists storage, tile sets for loading and storing, and sharding."""
    if attribute.type != attribute.INTS:
        return words_of(parse_location(",".join(_texts(attribute))))
    numbers = [*attribute.ints, 0, 0, 0, 0]
    return words_of(
        {
            "storage": "off_chip" if numbers[0] else "on_chip",
            "load_tile_set": "io" if numbers[1] else "compute",
            "storage_tile_set": "io" if numbers[2] else "compute",
        }
    )


def _placed(settings: OpSettings, field: str, number: int) -> OpSettings:
    if getattr(settings, field) is not None:
        return settings
    places: dict[str, Any] = {field: number}
    return replace(settings, **places)


_PLACES: Final = {
    "__execution_phase": "execution_phase",
    "__ipu_number": "virtual_graph",
    "__pipeline_stage": "pipeline_stage",
}
