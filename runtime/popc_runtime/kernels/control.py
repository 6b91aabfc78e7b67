"""Instructions that lowering adds around control flow."""

from __future__ import annotations

from functools import partial
from typing import Final

from popc_runtime.kernels.core.binding import Binding, Call, Kernel, MoveKernel

__all__ = ["KERNELS"]


def _fill(binding: Binding) -> Call:
    """Set every element of the output to the number ``value``."""
    out = binding.output()
    return partial(out.fill, out.dtype.type(binding.number("value")))


def _stack_store(binding: Binding) -> Call:
    """Copy input 0 to the row of the output that input 1 (an int64 scalar) selects."""
    value, index, rows = binding.input(0), binding.input(1).reshape(()), binding.output()

    def store() -> None:
        rows[index[()]] = value

    return store


KERNELS: Final[dict[str, Kernel]] = {"Fill": _fill, "StackStore": MoveKernel(_stack_store)}
