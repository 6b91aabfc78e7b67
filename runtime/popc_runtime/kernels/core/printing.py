"""The text stream that PrintTensor writes to: standard error, unless the application chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array

__all__ = ["PrintHook", "PrintStyle", "print_array", "set_print_hook"]

PrintHook: TypeAlias = Callable[[str], object]

# How floating-point numbers are written: PopART's numbers; any other is "as short as they are".
_AUTO, _FIXED, _SCIENTIFIC = range(3)
_MOST_FIXED, _LEAST_FIXED = 1e8, 1e-4  # beyond these, numbers are written with exponents


@dataclass(frozen=True, slots=True)
class PrintStyle:
    """The form in which an array is written.

    Attributes:
        threshold: Elements from which on only edges are written.
        edge_items: Elements at an edge.
        line_width: Characters of a line.
        digits: Digits of a floating-point number.
        float_format: 0 (as suits the numbers), 1 (fixed), 2 (with exponents), 3 (short).
        separator: What stands between elements.
        brackets: What opens and closes a dimension.
    """

    threshold: int = 1000
    edge_items: int = 3
    line_width: int = 75
    digits: int = 8
    float_format: int = _AUTO
    separator: str = " "
    brackets: str = "[]"


def _write_to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")


@dataclass(slots=True)
class _Printer:
    hook: PrintHook = _write_to_stderr


_PRINTER: Final = _Printer()


def set_print_hook(hook: PrintHook | None) -> None:
    """Let ``hook`` take what models print, one text per tensor; ``None``: standard error again.

    It holds for the whole process, and is called in the thread that runs the program.
    """
    _PRINTER.hook = _write_to_stderr if hook is None else hook


def print_array(title: str, array: Array, layout: PrintStyle) -> None:
    """Give "title: elements" to the hook; large arrays are summarised."""
    prefix = f"{title}: "
    elements = np.array2string(
        array,
        max_line_width=layout.line_width,
        separator=layout.separator,
        prefix=prefix,
        threshold=layout.threshold,
        edgeitems=layout.edge_items,
        formatter={"float_kind": _float_words(array, layout)},
    )
    brackets = {ord("["): layout.brackets[0], ord("]"): layout.brackets[1]}
    _PRINTER.hook(prefix + elements.translate(brackets))


def _float_words(array: Array, layout: PrintStyle) -> Callable[[Any], str]:
    """Says of an element how it is written: all are as wide as the widest."""
    if array.dtype.kind in "iub":
        return str
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    largest = float(finite.max(initial=0))
    least = float(finite.min(initial=np.inf, where=finite > 0))
    digits, style = layout.digits, layout.float_format
    if style == _AUTO:
        style = _SCIENTIFIC if largest >= _MOST_FIXED or least < _LEAST_FIXED else _FIXED
    decimals = {
        _FIXED: f".{max(digits - len(str(int(largest))), 0)}f",
        _SCIENTIFIC: f".{max(digits - 1, 0)}e",
    }
    pattern = decimals.get(style, f".{digits}g")
    shown = array if array.size <= layout.threshold else array.reshape(-1)[: layout.threshold]
    width = max((len(format(float(x), pattern)) for x in shown.reshape(-1)), default=0)
    return lambda x: format(float(x), pattern).rjust(width)
