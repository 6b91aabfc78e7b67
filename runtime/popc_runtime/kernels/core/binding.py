"""The operands of a kernel when a program is bound, and the calls that it gives back.

Binding happens once, at load.  A kernel looks at its operands (fixed numpy views), prepares
everything it can (strided views, reshaped operands, packed constants, scratch memory) and returns
the call or calls that do the work on every run.  A run is then a plain walk over ready calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import field, frozen
from popc_runtime.kernels.core.bound import Bound, Call
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.kernels.core.random_state import RandomState

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "Binding",
    "Call",
    "Calls",
    "CollectiveKernel",
    "Kernel",
    "MoveKernel",
    "Scratch",
    "pure",
]

Calls: TypeAlias = "Call | tuple[Call, ...]"


class Scratch:
    """Temporary memory that all kernels of a machine share.

    Instructions run one after another, so what one kernel keeps in scratch never outlives its
    call.  Each binding starts again at offset zero; a larger request replaces the buffer, and
    earlier bindings keep the smaller one that they hold views of.

    Attributes:
        threads: How many threads may share the work of an instruction (see `parallel`).
    """

    _ALIGNMENT = 64

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._buffer = np.empty(0, np.uint8)
        self._used = 0
        self._peak = 0

    def reset(self) -> None:
        """Forget the views handed out so far: the next instruction may overwrite them."""
        self._used = self._peak = 0

    def mark(self) -> int:
        """The place of the next view: see `rewind`."""
        return self._used

    def rewind(self, mark: int) -> None:
        """Forget the views handed out since ``mark``: the next calls may overwrite them.

        For kernels that work block by block with the same temporaries.
        """
        self._used = mark

    def skip(self) -> None:
        """Keep all views handed out for this instruction, rewound or not, out of what follows."""
        self._used = self._peak

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised C-contiguous array, valid during one call."""
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        start = -(-self._used // self._ALIGNMENT) * self._ALIGNMENT
        if start + nbytes > self._buffer.nbytes:
            # Views taken earlier for this instruction stay on the old buffer: no overlap.
            self._buffer = np.empty(max(2 * self._buffer.nbytes, nbytes, 1 << 16), np.uint8)
            start = 0
        self._used = start + nbytes
        self._peak = max(self._peak, self._used)
        return self._buffer[start : start + nbytes].view(dtype).reshape(shape).view(Bound)


@frozen
class Binding(Operands[Array]):
    """The operands of a kernel.

    bfloat16 operands never reach a kernel: the binder converts them to float32 before and from
    float32 after (except for a `MoveKernel`).

    Attributes:
        scratch: Temporary memory for the duration of one call.
        random: The device's random numbers.
        replica: The number of the replica that the instruction runs on.
        calls: The functions of the host, by name.
    """

    scratch: Scratch
    random: RandomState
    replica: int = 0
    calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])


Kernel: TypeAlias = Callable[[Binding], Calls]


@frozen
class MoveKernel:
    """A kernel that moves elements without looking at them: bfloat16 needs no widening for it.

    It is given bfloat16 operands as they are stored, the uint16 arrays of their bit patterns.
    """

    function: Kernel

    def __call__(self, binding: Binding) -> Calls:
        """The calls of the wrapped kernel."""
        return self.function(binding)


@frozen
class CollectiveKernel:
    """A kernel that all replicas run together: it is given the operands of each, in their order.

    bfloat16 operands are given as they are stored.
    """

    together: Callable[[Sequence[Binding]], Calls]

    def __call__(self, binding: Binding) -> Calls:
        """The calls for a single replica."""
        return self.together((binding,))


PureFunction: TypeAlias = Callable[[Binding], "Array | tuple[Array, ...]"]


def pure(function: PureFunction) -> Kernel:
    """A kernel from a function that allocates its results: simple, for ops that are rarely hot."""

    def kernel(binding: Binding) -> Call:
        def call() -> None:
            results = function(binding)
            arrays = results if isinstance(results, tuple) else (results,)
            for target, array in zip(binding.outputs, arrays, strict=False):
                if target is not None:
                    np.copyto(target, array, casting="unsafe")

        return call

    return kernel
