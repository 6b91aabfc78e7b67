"""Einsum: the axes of a letter have one size; those that are summed count no padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.rules.sized.node import SizedNode, SizedRule, sized
from popc.frontend.rules.sized.spread import along_axis
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _einsum(node: SizedNode) -> Value:
    values = [sized(value) for value in node.inputs]
    terms, result = _letters(node, values)
    tensors = {index: value.padded for index, value in enumerate(values)}
    counts: dict[str, Tensor | None] = {}
    for letter in dict.fromkeys("".join(terms)):
        places = [
            (index, axis)
            for index, term in enumerate(terms)
            for axis, other in enumerate(term)
            if other == letter
        ]
        if any(values[index].counts[axis] is not None for index, axis in places):
            if letter not in result:
                for index, axis in places:
                    own = SizedValue(tensors[index], values[index].counts)
                    tensors[index] = node.masked(own, 0, [axis])
            counts[letter] = along_axis(node, tensors, [(i, values[i], a) for i, a in places])
    (padded,) = node.plain(list(tensors.values()))
    return node.value_of(padded, [counts.get(letter) for letter in result])


def _letters(node: SizedNode, values: Sequence[SizedValue]) -> tuple[list[str], str]:
    """The letters of the axes of each operand, and of the result."""
    equation = node.text("equation").replace(" ", "")
    if "." in equation:
        raise node.refuse("spreads operands (...) of sizes that data decides")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if [len(term) for term in terms] != [len(value.counts) for value in values]:
        raise ModelError(f"equation {equation!r} does not fit the operands")
    if any(len(set(term)) != len(term) for term in terms):
        raise node.refuse("takes diagonals of a tensor of sizes that data decides")
    if not arrow:
        result = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    return terms, result


RULES: Final[dict[str, SizedRule]] = {"Einsum": _einsum}
