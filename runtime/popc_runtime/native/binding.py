"""The input of an encoder: the operands of an instruction as views."""

from __future__ import annotations

from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Packing
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.native.views import PackedView, View, as_view, empty

if TYPE_CHECKING:
    from popc_runtime.kernels.core.binding import Binding
    from popc_runtime.kernels.core.random_state import RandomState

__all__ = ["NativeBinding", "Space"]

_ALIGNMENT = 64  # a cache line, and the widest register
_LEAST = 1 << 16  # bytes, so that small programs ask for memory once


class Space:
    """Temporary memory that all records of a program share.

    Instructions run one after another, so what one keeps here never outlives it.  Each starts
    again at the beginning; a larger request replaces the memory, and earlier records keep the
    smaller one that they hold views of.
    """

    def __init__(self) -> None:
        self._buffer: View | None = None
        self._used = 0

    def reset(self) -> None:
        """Forget the views handed out so far: the next instruction may overwrite them."""
        self._used = 0

    def mark(self) -> int:
        """The place of the next view: see `rewind`."""
        return self._used

    def rewind(self, mark: int) -> None:
        """Forget the views handed out since ``mark``: the next records may overwrite them."""
        self._used = mark

    def take(self, shape: tuple[int, ...], dtype: DType) -> View:
        """A contiguous view of memory that holds anything, valid during one instruction."""
        nbytes = prod(shape) * dtype.itemsize
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if self._buffer is None or start + nbytes > self._buffer.nbytes:
            # Views taken earlier for this instruction stay on the old buffer: no overlap.
            before = 0 if self._buffer is None else self._buffer.nbytes
            self._buffer = empty((max(2 * before, nbytes, _LEAST),), DType.UINT8)
            start = 0
        self._used = start + nbytes
        return self._buffer.of_memory(shape, offset=start, dtype=dtype)


@frozen
class NativeBinding(Operands[View]):
    """The input of an encoder; bfloat16 operands are views of their bit patterns.

    Attributes:
        scratch: Temporary memory for the duration of the instruction.
        random: The device's random numbers.
        replica: The number of the replica that the instruction runs on.
    """

    scratch: Space
    random: RandomState
    replica: int = 0

    @classmethod
    def of(cls, binding: Binding, scratch: Space) -> NativeBinding:
        """The input of numpy's kernels, for encoders."""
        return cls(
            tuple(map(as_view, binding.inputs)),
            tuple(map(as_view, binding.outputs)),
            binding.input_dtypes,
            binding.output_dtypes,
            binding.attributes,
            binding.constant,
            scratch,
            binding.random,
            binding.replica,
        )

    def panels(self, index: int, packing: Packing) -> View | None:
        """An input's shape, where it lies in panels; ``None`` if it is not stored in these.

        A kernel that is given this view must be told so: its strides are those of the elements.
        """
        view = self.input(index)
        return view.panels if isinstance(view, PackedView) and view.packing is packing else None

    def for_numpy(self) -> Binding:
        """The same for functions of numpy's kernels; they have scratch memory of their own."""
        import numpy as np

        from popc_runtime.kernels.core.binding import Binding, Scratch

        return Binding(
            tuple(None if view is None else np.asarray(view) for view in self.inputs),
            tuple(None if view is None else np.asarray(view) for view in self.outputs),
            self.input_dtypes,
            self.output_dtypes,
            self.attributes,
            self.constant,
            Scratch(),
            self.random,
            self.replica,
        )
