"""Programs that the numpy engine runs, with every instruction computed natively beside it.

Both get the same operands, so that nothing adds up, whatever a network makes of small differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from popc.ir import TensorType
from popc.ops import OPS
from popc_runtime.device.bound_program import IO_OPCODES
from popc_runtime.device.numpy_binder import NumpyBinder
from popc_runtime.format import Array, DType, Instruction
from popc_runtime.kernels import Binding, Call
from popc_runtime.native import Library
from tests.native.compared import Where, check
from tests.native.problems import Problem

__all__ = ["shadowed"]


@contextmanager
def shadowed(library: Library) -> Iterator[Counter[str]]:
    """While numpy engines are made: their instructions compare themselves with native kernels.

    Gives how many were computed by a "kernel", translated "calls", or "" by numpy only.
    """
    hows: Counter[str] = Counter()
    calls_of = NumpyBinder.calls

    def calls(self: NumpyBinder, item: Instruction) -> tuple[Call, ...]:
        found = calls_of(self, item)
        spec = OPS.get(item.opcode)
        if item.opcode in IO_OPCODES or spec is None or spec.random or spec.collective:
            return found
        binding = self.operands(item)
        return (lambda: _compare(library, item.opcode, binding, found, hows),)

    with patch.object(NumpyBinder, "calls", calls):
        yield hows


def _compare(
    library: Library, opcode: str, binding: Binding, calls: tuple[Call, ...], hows: Counter[str]
) -> None:
    inputs = tuple(None if operand is None else operand.copy() for operand in binding.inputs)
    for call in calls:
        call()
    types = tuple(map(_type, inputs, binding.input_dtypes))
    problem = Problem(opcode, inputs, types, binding.attributes, binding.constant)
    expected = [result.copy() for result in binding.outputs if result is not None]
    if len(expected) < len(problem.output_types):
        hows["results not wanted"] += 1
        return
    try:
        hows[check(library, problem, expected, Where())] += 1
    except AssertionError as error:
        raise AssertionError(str(problem)) from error


def _type(array: Array | None, dtype: DType | None) -> TensorType | None:
    return None if array is None or dtype is None else TensorType(dtype, array.shape)
