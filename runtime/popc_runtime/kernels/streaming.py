"""Transfers from and to streaming memory, which here is memory like any other."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls, is_same_memory
from popc_runtime.kernels.core.indices import normal_indices
from popc_runtime.kernels.indexing import gather

__all__ = ["KERNELS"]


def _moved(binding: Binding) -> Calls:
    """Copy each operand to the output of its number."""
    pairs = ((binding.input(i), binding.output(i)) for i in range(len(binding.outputs)))
    return tuple(
        call
        for source, target in pairs
        if not is_same_memory(target, source)
        for call in copy_calls(target, source)
    )


def _update_rows(binding: Binding) -> Calls:
    """The table, from which learning rate times what the rows of values say is taken."""
    table, out = binding.input(0), binding.output()
    values, packing = as_contiguous(binding, 2)
    rate = binding.input(3)
    width = prod(table.shape[1:])
    normal, checking = normal_indices(binding, 1, table.shape[0])
    rows, updates = normal.reshape(-1), values.reshape(normal.size, width)
    target = out.reshape(table.shape[0], width)
    copies = () if is_same_memory(out, table) else copy_calls(out, table)

    def update() -> None:
        named, places = np.unique(rows, return_inverse=True)
        sums = np.zeros((named.size, width), np.float32)
        np.add.at(sums, places.reshape(-1), updates)
        np.multiply(sums, np.float32(-float(rate)), out=sums)
        np.add(sums, target[named], out=sums)
        target[named] = sums

    return (*copies, *packing, *checking, update)


KERNELS: Final[dict[str, Kernel]] = {
    "RemoteGather": MoveKernel(gather),
    "RemoteLoad": MoveKernel(_moved),
    "RemoteScatterAdd": _update_rows,
    "RemoteStore": MoveKernel(_moved),
}
