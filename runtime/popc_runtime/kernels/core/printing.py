"""The text stream that PrintTensor writes to: standard error, unless the application chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array

__all__ = ["PrintHook", "print_array", "set_print_hook"]

PrintHook: TypeAlias = Callable[[str], object]

_SUMMARISED: Final = 1000  # elements from which on only the edges of an array are printed


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


def print_array(title: str, array: Array) -> None:
    """Give "title: elements" to the hook; large arrays are summarised."""
    prefix = f"{title}: "
    elements = np.array2string(
        array,
        max_line_width=100,
        precision=6,
        separator=" ",
        prefix=prefix,
        threshold=_SUMMARISED,
        edgeitems=3,
        floatmode="maxprec",
    )
    _PRINTER.hook(prefix + elements)
