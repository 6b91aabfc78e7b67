"""Runs of rows copied from one tensor into another: sequences packed and unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls, is_same_memory
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]


@dataclass(frozen=True, slots=True)
class _Runs:
    """The number of rows of each run, and their places among the rows of two tensors."""

    counts: Array
    read: Array
    written: Array

    @classmethod
    def of(cls, binding: Binding, first: int) -> _Runs:
        """The runs that operands ``first`` on hold."""
        return cls(*(binding.input(index) for index in range(first, first + 3)))

    def pairs(self, source: Array, target: Array) -> Iterator[tuple[Array, Array]]:
        """The rows of each run in both tensors, as they are placed now.

        Raises:
            IndexError: a run leaves a tensor.
        """
        runs = zip(self.counts.tolist(), self.read.tolist(), self.written.tolist(), strict=True)
        for count, read, written in runs:
            if count == 0:
                continue
            _check(count, read, len(source), "read")
            _check(count, written, len(target), "written")
            yield source[read : read + count], target[written : written + count]


def _check(count: int, start: int, rows: int, what: str) -> None:
    if count < 0 or not 0 <= start <= rows - count:
        raise IndexError(
            f"{count} rows from row {start} on cannot be {what}: there are {rows} rows"
        )


def _sequence_slice(binding: Binding) -> Calls:
    source, out = binding.input(0), binding.output()
    runs = _Runs.of(binding, 2)
    return (*_start(binding), partial(_copy_runs, runs, source, out))


def _start(binding: Binding) -> tuple[Call, ...]:
    """Calls that fill the rows that no run covers."""
    destination, out = binding.input(1), binding.output()
    if binding.integer("zero_unused"):
        return (partial(out.fill, 0),)
    return () if is_same_memory(destination, out) else copy_calls(out, destination)


def _copy_runs(runs: _Runs, source: Array, target: Array) -> None:
    for rows, place in runs.pairs(source, target):
        np.copyto(place, rows)


def _sequence_slice_grad(binding: Binding) -> Calls:
    """A source row that several runs copied gets the gradients of all copies."""
    grad, out = binding.input(0), binding.output()
    runs = _Runs.of(binding, 1)
    return (partial(out.fill, 0), partial(_add_runs, runs, out, grad))


def _add_runs(runs: _Runs, source: Array, target: Array) -> None:
    for total, rows in runs.pairs(source, target):
        np.add(total, rows, out=total)


KERNELS: Final[dict[str, Kernel]] = {
    "SequenceSlice": MoveKernel(_sequence_slice),
    "SequenceSliceGrad": in_float32(_sequence_slice_grad),
}
