"""Annotations of the way in which ops are computed: products in parts, work in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from popc.frontend import messages as onnx
from popc.frontend.names import did_you_mean
from popc.frontend.output_type import SUMS_OF_PRODUCTS
from popc.ir import Op, OpSettings, ProductCut
from popc.ops import OPS
from popc.options.annotations import ANNOTATIONS, CUTS, IN_PLACE

__all__ = ["annotation_problems", "operators_meant", "with_annotations"]

# Operators that serialize_matmul_... is for, and what they become.
_PRODUCTS: Final = ("MatMul", "Gemm")
_LOOKUPS: Final = ("Gather",)

_MODE, _FACTOR, _PRECISION = (
    ANNOTATIONS[f"serialize_matmul_{what}"].attribute
    for what in ("mode", "factor", "keep_precision")
)
_LOOKUP_FACTOR: Final = ANNOTATIONS["serialize_lookup_factor"].attribute
_NAMES, _PRIORITIES = (
    ANNOTATIONS[f"inplace_op_{what}"].attribute for what in ("names", "priorities")
)
_MEMORY, _EXCLUDED = (
    ANNOTATIONS[name].attribute for name in ("available_memory", "exclude_patterns")
)
_MODES: Final = {spelling: str(mode) for spelling, mode in CUTS.meanings.items()}
_SUFFIX: Final = "Inplace"  # of PopART's names for ops that overwrite an operand


def operators_meant(annotation: str) -> tuple[str, ...]:
    """The operators that an annotation, by our name for it, is for; empty if it is for all."""
    if annotation == "output_type":
        return SUMS_OF_PRODUCTS
    if annotation == "serialize_lookup_factor":
        return _LOOKUPS
    return _PRODUCTS if annotation.startswith("serialize_matmul_") else ()


def annotation_problems(node: onnx.NodeProto) -> Iterator[str]:
    """Problems with such annotations of ``node``, each to follow its name."""
    found = _attributes(node)
    cutting = [name for name in (_MODE, _FACTOR, _PRECISION) if name in found]
    if cutting and node.op_type not in _PRODUCTS:
        listed = " or ".join(_PRODUCTS)
        yield f"{cutting[0]} is for {listed}, not for {node.op_type}"
    elif cutting:
        yield from _cut_problems(found)
    if _LOOKUP_FACTOR in found:
        yield from _lookup_problems(node.op_type, found[_LOOKUP_FACTOR])
    if _MEMORY in found:
        yield from _memory_problems(found[_MEMORY])
    if (_NAMES in found) != (_PRIORITIES in found):
        given, missing = sorted((_NAMES, _PRIORITIES), key=lambda name: name not in found)
        yield f"{given} needs {missing}"
    elif _NAMES in found:
        yield from _inplace_problems(_texts(found[_NAMES]), found[_PRIORITIES])


def _cut_problems(found: dict[str, Any]) -> Iterator[str]:
    mode = _text(found.get(_MODE, "none"))
    factor = found.get(_FACTOR, 0)
    if mode not in _MODES:
        yield f"{_MODE} is {mode!r}, but must be one of {', '.join(_MODES)}"
    elif not isinstance(factor, int) or factor < 0:
        yield f"{_FACTOR} is {factor!r}, but must be a whole number"
    elif _MODE not in found:
        yield f"{_FACTOR if _FACTOR in found else _PRECISION} needs {_MODE}"
    elif mode != "none" and factor == 0:
        yield f"{_MODE} needs {_FACTOR}: the number of parts"


def _lookup_problems(op_type: str, factor: object) -> Iterator[str]:
    if op_type not in _LOOKUPS:
        yield f"{_LOOKUP_FACTOR} is for {' or '.join(_LOOKUPS)}, not for {op_type}"
    elif not isinstance(factor, int) or factor < 0:
        yield f"{_LOOKUP_FACTOR} is {factor!r}, but must be a whole number"


def _inplace_problems(names: Sequence[str], priorities: object) -> Iterator[str]:
    count = len(priorities) if isinstance(priorities, list | tuple) else 1
    if len(names) != count:
        yield f"{_NAMES} has {len(names)} entries, but {_PRIORITIES} has {count}"
    for name in names:
        if not name.endswith(_SUFFIX):
            yield (
                f"{_NAMES} contains {name!r}, but must name ops that overwrite an operand, such as "
                f"Relu{_SUFFIX} or AddRhs{_SUFFIX}{did_you_mean(name, (name + _SUFFIX,))}"
            )


def _memory_problems(value: object) -> Iterator[str]:
    for number in _numbers(value):
        if not isinstance(number, int | float) or not 0 < number <= 1:
            yield f"{_MEMORY} is {number!r}, but must be above 0 and at most 1"


def with_annotations(
    settings: OpSettings, op: Op, node: onnx.NodeProto, number: int = 0
) -> OpSettings:
    """``settings`` of an op of ``node``, with what the node's annotations say of it.

    ``number`` counts the ops of this type that the node has become, from 0: convolutions of a
    MultiConv have a proportion of memory each.
    """
    found = _attributes(node)
    if found.get(_MEMORY) and settings.available_memory is None:
        proportions = _numbers(found[_MEMORY])
        last = len(proportions) - 1
        settings = replace(settings, available_memory=float(proportions[min(number, last)]))
    if any(name in IN_PLACE for name in _texts(found.get(_EXCLUDED, ()))) and not settings.inplace:
        spec = OPS.get(op.op_type)
        able = () if spec is None else spec.inplace
        settings = replace(settings, inplace=tuple((index, 0.0) for index in sorted(able)))
    if _MODE in found and op.op_type in _PRODUCTS and settings.cut is None:
        mode, factor = _MODES[_text(found[_MODE])], found.get(_FACTOR, 0)
        if mode != "none" and factor > 1:
            keep = bool(found.get(_PRECISION, 0))
            settings = replace(settings, cut=ProductCut(mode, factor, keep))
    if op.op_type in _LOOKUPS and settings.cut is None and found.get(_LOOKUP_FACTOR, 0) > 1:
        settings = replace(settings, cut=ProductCut("rows", found[_LOOKUP_FACTOR]))
    if _NAMES in found and not settings.inplace:
        spec = OPS.get(op.op_type)
        able = () if spec is None else spec.inplace
        priorities = {
            int("Rhs" in name): float(priority)
            for name, priority in zip(_texts(found[_NAMES]), found[_PRIORITIES], strict=True)
        }
        inplace = tuple(
            sorted((index, priority) for index, priority in priorities.items() if index in able)
        )
        settings = replace(settings, inplace=inplace)
    return settings


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    wanted = (
        *(_MODE, _FACTOR, _PRECISION, _LOOKUP_FACTOR, _NAMES, _PRIORITIES),
        *(_MEMORY, _EXCLUDED),
    )
    found = [attribute for attribute in node.attribute if attribute.name in wanted]
    if not found:
        return {}
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in found}


def _numbers(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return text.lower()


def _texts(values: object) -> list[str]:
    items = values if isinstance(values, list | tuple) else [values]
    return [
        item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in items
    ]
