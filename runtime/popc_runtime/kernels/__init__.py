"""Opcode -> kernel: the definition of every instruction, in numpy."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.ground.lazy import lazy_names
from popc_runtime.ground.tables import LazyTable
from popc_runtime.kernels.families import FAMILIES

if TYPE_CHECKING:
    from popc_runtime.kernels.binding import (
        Binding,
        Call,
        Calls,
        CollectiveKernel,
        Kernel,
        MoveKernel,
        Scratch,
        pure,
    )
    from popc_runtime.kernels.operands import Operands
    from popc_runtime.kernels.preparation import prepare
    from popc_runtime.kernels.random_state import RandomState

__all__ = [
    "KERNELS",
    "Binding",
    "Call",
    "Calls",
    "CollectiveKernel",
    "Kernel",
    "MoveKernel",
    "Operands",
    "RandomState",
    "Scratch",
    "prepare",
    "pure",
]

KERNELS: Final[Mapping[str, Kernel]] = LazyTable(__name__, "KERNELS", FAMILIES)

# What native kernels compute needs no numpy.
__getattr__ = lazy_names(
    __name__,
    {
        "Binding": "popc_runtime.kernels.binding",
        "Call": "popc_runtime.kernels.binding",
        "Calls": "popc_runtime.kernels.binding",
        "CollectiveKernel": "popc_runtime.kernels.binding",
        "Kernel": "popc_runtime.kernels.binding",
        "MoveKernel": "popc_runtime.kernels.binding",
        "Operands": "popc_runtime.kernels.operands",
        "RandomState": "popc_runtime.kernels.random_state",
        "Scratch": "popc_runtime.kernels.binding",
        "prepare": "popc_runtime.kernels.preparation",
        "pure": "popc_runtime.kernels.binding",
    },
)
