"""Names of instructions in programs that are called: patterns, filled with the labels of a call.

A mark ``{0}`` stands for the first label of the call.  Labels are filled in once: what looks like a
mark in a label stays as it is, unless the label is itself a pattern of the program that calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from popc_runtime.format.program import (
    Attributes,
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    RepeatBlock,
)
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = ["fill_labels", "result_names", "text_written_out"]

# Of a program: the bytes of its names when it is called with labels of no length, and how often it
# writes each label.
_Text: TypeAlias = tuple[int, Mapping[int, int]]

_MOST_DIGITS: Final = 5  # of the number of a label


def fill_labels(pattern: str, labels: Sequence[str]) -> str:
    """``pattern`` with labels in the places marked for them."""
    if "{" not in pattern:
        return pattern
    return _pieces(pattern, lambda number: _label(number, labels))


def text_written_out(programs: Mapping[str, Block]) -> int:
    """Characters of all names when every call is written out, found without writing any.

    ``programs`` call each other, but never in a circle.
    """
    texts = map(_Texts(programs).of, programs)
    return sum(
        fixed + sum(count * len(_label(number, ())) for number, count in counts.items())
        for fixed, counts in texts
    )


class _Texts:
    """The texts of programs, found when they are asked for."""

    def __init__(self, programs: Mapping[str, Block]) -> None:
        self._programs = programs
        self._known: dict[str, _Text] = {}

    def of(self, name: str) -> _Text:
        """The text of one program."""
        if name not in self._known:
            self._known[name] = _text_of(self._programs[name], self.of)
        return self._known[name]


def _text_of(block: Block, of: Callable[[str], _Text]) -> _Text:
    fixed, counts = 0, dict[int, int]()

    def add(text: _Text, times: int = 1) -> None:
        nonlocal fixed
        fixed += times * text[0]
        for number, count in text[1].items():
            counts[number] = counts.get(number, 0) + times * count

    for item in block:
        if isinstance(item, Instruction) and not item.attributes and "{" not in item.name:
            fixed += len(item.name)
            continue
        for name in _names(item):
            add(_measure(name))
        for body in _bodies(item):
            add(_text_of(body, of))
        if isinstance(item, CallBlock):
            callee, uses = of(item.program)
            fixed += callee
            for number, count in uses.items():
                add(_measure(_label(number, item.labels)), count)
    return fixed, counts


def _label(number: int, labels: Sequence[str]) -> str:
    """The label of a number; the mark itself if the call has none."""
    return labels[number] if number < len(labels) else f"{{{number}}}"


def _names(item: Item) -> Sequence[str]:
    if isinstance(item, Instruction):
        return (item.name, *result_names(item.attributes))
    return (item.name,)


def _bodies(item: Item) -> Sequence[Block]:
    if isinstance(item, RepeatBlock):
        return (item.body,)
    return (item.then_body, item.else_body) if isinstance(item, IfBlock) else ()


def result_names(attributes: Attributes) -> Sequence[str]:
    """The names of results, which an instruction may have, and which are patterns too."""
    names = attributes.get("results")
    return [str(name) for name in names] if isinstance(names, tuple) else []


def _measure(pattern: str) -> _Text:
    counts: dict[int, int] = {}

    def count(number: int) -> str:
        counts[number] = counts.get(number, 0) + 1
        return ""

    return (len(_pieces(pattern, count)) if "{" in pattern else len(pattern)), counts


def _pieces(pattern: str, label: Callable[[int], str]) -> str:
    """``pattern`` with what ``label`` gives for the number of each mark."""
    first, *rest = pattern.split("{")
    pieces = [first]
    for part in rest:
        digits, closed, tail = part.partition("}")
        is_mark = bool(closed) and _is_number(digits)
        pieces.append(label(int(digits)) + tail if is_mark else "{" + part)
    return "".join(pieces)


def _is_number(digits: str) -> bool:
    plain = digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS
    return plain and (digits == "0" or digits[0] != "0")
