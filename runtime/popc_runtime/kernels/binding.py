"""What a kernel is given when a program is bound, and what it gives back.

Binding happens once, at load.  A kernel looks at its operands (fixed numpy views), prepares
everything it can (strided views, reshaped operands, packed constants, scratch memory) and returns
the call or calls that do the work on every run.  A run is then a plain walk over ready calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.format.program import Attributes
from popc_runtime.frozen import frozen
from popc_runtime.kernels.random_state import RandomState

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

Call: TypeAlias = Callable[[], object]
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
        """Where the next view would start: see `rewind`."""
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
        return self._buffer[start : start + nbytes].view(dtype).reshape(shape)


@frozen
class Binding:
    """The operands of one instruction.

    Attributes:
        inputs: One array per operand, ``None`` where an optional operand is absent.  They may be
            strided or broadcast views.  Kernels must not write to them.
        outputs: Arrays that the calls fill.  They are C-contiguous unless the op's spec allows
            strided outputs.  An output may share memory with an input only where the op's spec
            lists that input under ``inplace``.  ``None`` where the result is not wanted.
        input_dtypes, output_dtypes: DTypes of the operands.  bfloat16 operands never reach a
            kernel: the binder converts them to float32 before and from float32 after
            (except for a `MoveKernel`).
        attributes: Static parameters.
        constant: For each input, whether its contents are final when the program is bound, so
            that packing it once is allowed.
        scratch: Temporary memory for the duration of one call.
        random: The device's random numbers.
        replica: The number of the replica that the instruction runs on.
    """

    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    input_dtypes: tuple[DType | None, ...]
    output_dtypes: tuple[DType | None, ...]
    attributes: Attributes
    constant: tuple[bool, ...]
    scratch: Scratch
    random: RandomState
    replica: int = 0

    def input(self, index: int) -> Array:
        """A required input.

        Raises:
            ValueError: the operand is absent (a malformed archive).
        """
        array = self.inputs[index] if index < len(self.inputs) else None
        if array is None:
            raise ValueError(f"operand {index} is required")
        return array

    def optional(self, index: int) -> Array | None:
        """An optional input, ``None`` where absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Array:
        """A required output.

        Raises:
            ValueError: the output is absent (a malformed archive).
        """
        array = self.outputs[index] if index < len(self.outputs) else None
        if array is None:
            raise ValueError(f"output {index} is required")
        return array

    def optional_output(self, index: int) -> Array | None:
        """An output that may not be wanted."""
        return self.outputs[index] if index < len(self.outputs) else None

    def is_constant(self, index: int) -> bool:
        """Whether input ``index`` is present and final at bind time."""
        return index < len(self.constant) and self.constant[index]

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ValueError(f"attribute {name!r} must be an integer, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, (int, float)):
            raise ValueError(f"attribute {name!r} must be a number, not {value!r}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, str):
            raise ValueError(f"attribute {name!r} must be a string, not {value!r}")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list-of-integers attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise ValueError(f"attribute {name!r} must be a list of integers, not {value!r}")
        return tuple(int(item) for item in value)

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """A list-of-floats attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise ValueError(f"attribute {name!r} must be a list of numbers, not {value!r}")
        return tuple(float(item) for item in value)


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
