"""Opcode -> kernel: the definition of every instruction, in numpy."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.ground.lazy import lazy_names
from popc_runtime.ground.tables import LazyTable
from popc_runtime.kernels.core.families import FAMILIES

if TYPE_CHECKING:
    from popc_runtime.kernels.core.binding import (
        Binding,
        Call,
        Calls,
        CollectiveKernel,
        Kernel,
        MoveKernel,
        Scratch,
        pure,
    )
    from popc_runtime.kernels.core.operands import Operands
    from popc_runtime.kernels.core.preparation import prepare
    from popc_runtime.kernels.core.random_state import RandomState

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
        "Binding": "popc_runtime.kernels.core.binding",
        "Call": "popc_runtime.kernels.core.binding",
        "Calls": "popc_runtime.kernels.core.binding",
        "CollectiveKernel": "popc_runtime.kernels.core.binding",
        "Kernel": "popc_runtime.kernels.core.binding",
        "MoveKernel": "popc_runtime.kernels.core.binding",
        "Operands": "popc_runtime.kernels.core.operands",
        "RandomState": "popc_runtime.kernels.core.random_state",
        "Scratch": "popc_runtime.kernels.core.binding",
        "prepare": "popc_runtime.kernels.core.preparation",
        "pure": "popc_runtime.kernels.core.binding",
    },
)
