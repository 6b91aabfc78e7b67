"""Effects of ops beside computing: end a run, print."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Final

from popc_runtime.errors import DeviceError
from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.core.printing import PrintStyle, print_array

__all__ = ["KERNELS"]


def _abort(binding: Binding) -> Calls:
    condition = binding.optional(0)
    flag = None if condition is None else condition.reshape(())
    return partial(_abort_if, flag, binding.text("title"))


def _abort_if(flag: Array | None, title: str) -> None:
    if flag is None or flag[()]:
        raise DeviceError(f"the model aborted the run at {title}", subject=title)


def _detach(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0))


def _print(binding: Binding) -> Calls:
    x = binding.input(0)
    given = {name: binding.attributes[name] for name in _LAYOUT if name in binding.attributes}
    return (
        *copy_calls(binding.output(), x),
        partial(print_array, binding.text("title"), x, PrintStyle(**given)),  # type: ignore[arg-type]
    )


_LAYOUT: Final = tuple(field.name for field in fields(PrintStyle))


KERNELS: Final[dict[str, Kernel]] = {
    "Abort": _abort,
    "Detach": MoveKernel(_detach),
    "PrintTensor": _print,
}
