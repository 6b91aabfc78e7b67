"""The faults that stop kernels, in the words of numpy's."""

from __future__ import annotations

from importlib import import_module

from popc_runtime.native.binding import NativeBinding

__all__ = ["fault_of"]


def fault_of(family: str, opcode: str, binding: NativeBinding) -> str:
    """The message of numpy's kernel about what is wrong: an index, or shapes that do not fit."""
    kernels = import_module(f"popc_runtime.kernels.{family}").KERNELS
    calls = kernels[opcode](binding.for_numpy())
    try:
        for call in calls if isinstance(calls, tuple) else (calls,):
            call()
    except (IndexError, ValueError) as error:
        return str(error)
    return ""
