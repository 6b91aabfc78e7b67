"""Problems computed with operands that a run has elsewhere, next to memory that traps."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.array_utils import byte_bounds

from popc_runtime.format import Array, DType, TensorSpec
from popc_runtime.kernels import Binding
from popc_runtime.native import Item, Library, NativeFailure, NativeProgram, Transfer
from popc_runtime.native.views import View

__all__ = ["before_a_guard", "run_lent"]

_PAGE: Final = mmap.PAGESIZE
_NOTHING: Final = 0  # PROT_NONE, which mmap does not name
_POISON: Final = 0xFF


def before_a_guard(data: bytes) -> tuple[Array, object]:
    """``data``, which cannot be written, in front of a page that cannot be read; and its owner."""
    size = -(-len(data) // _PAGE) * _PAGE
    memory = mmap.mmap(-1, size + _PAGE)
    memory[size - len(data) : size] = data
    array = np.frombuffer(memory, np.uint8, len(data), size - len(data))
    start = array.__array_interface__["data"][0] + len(data) - size
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for address, length, rights in ((start, size, mmap.PROT_READ), (start + size, _PAGE, _NOTHING)):
        if protect(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(rights)):
            raise OSError(ctypes.get_errno(), "mprotect")
    return array, memory


def run_lent(
    library: Library, items: Sequence[Item], binding: Binding, apart: Sequence[int]
) -> list[str]:
    """Run ``items`` on operands that lie elsewhere; the numbers of those that kernels read there.

    ``apart`` are those that share memory with nothing else.  What was in their memory is spoiled
    while kernels run.  So do results that share memory with nothing: they are written to their own
    memory in the end, after it was found as it was.
    """
    windows = {str(index): _window(binding.inputs[index]) for index in apart}
    moves: list[Item] = [
        Transfer(name, loads=True, memory=window, call=_never, lands=1)
        for name, window in windows.items()
    ]
    results = {f"result {index}": _window(binding.outputs[index]) for index in _alone(binding)}
    stores: list[Item] = [
        Transfer(name, loads=False, memory=window, call=_never, lands=1)
        for name, window in results.items()
    ]
    program = NativeProgram(library, [*moves, *items, *stores], binding, 2)
    specs, made = (
        [TensorSpec(name, DType.UINT8, (len(each),)) for name, each in some.items()]
        for some in (windows, results)
    )
    run: Any = program.direct(specs, made, _fail)
    before = {name: bytes(results[name]) for name in run.__self__.filled()}
    held = {name: bytes(window) for name, window in windows.items()}
    lent = {name: before_a_guard(data) for name, data in held.items()}
    for window in windows.values():
        window[:] = bytes([_POISON]) * len(window)
    try:
        written = run({name: array for name, (array, _) in lent.items()}, None)
        for name, window in results.items():
            assert bytes(window) == before.get(name, bytes(window)), "a result was written here"
            window[:] = written[name].tobytes()
    finally:
        for name, window in windows.items():
            window[:] = held[name]
    return list(run.__self__.lent())


def _alone(binding: Binding) -> list[int]:
    """Results without gaps that share memory with nothing else."""
    others = [*binding.inputs, *binding.outputs]
    return [
        index
        for index, result in enumerate(binding.outputs)
        if result is not None
        and result.size
        and result.flags.c_contiguous
        and sum(other is not None and np.may_share_memory(result, other) for other in others) == 1
    ]


def _window(array: Array | None) -> memoryview:
    assert array is not None, "the operand is there"
    low, high = byte_bounds(array)
    return View(low, (high - low,), DType.UINT8, owner=array).memory()


def _never() -> None:
    raise AssertionError("the direct run moves it")


def _fail(failure: NativeFailure) -> None:
    raise failure
