"""Single numbers that processes tell each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.groups import GroupExchange, ReplicaShare
from popc_runtime.kernels.collectives_between import Meeting
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.stored import floats_of
from popc_runtime.process.watch import RunWatch

__all__ = ["flags_between", "numbers_between"]


def flags_between(bindings: Sequence[Binding], meeting: Meeting) -> tuple[Array, tuple[Call, ...]]:
    """Numbers that are as little finite as the operands in other processes, and what sets them.

    They are zeros, infinite for a process with an operand that is, and NaN for one with a NaN.
    """
    size = meeting.group.size
    exchange = GroupExchange.alike(meeting.group, f"checks of {meeting.words}", 4, [4] * size)
    flags = np.zeros(size, np.float32)
    operands = [
        (binding.input(0), binding.input_dtypes[0])
        for binding in bindings
        if binding.input_dtypes[0] is not None and binding.input_dtypes[0].is_float
    ]

    def send() -> None:
        values = [_least_finite(floats_of(array, dtype)) for array, dtype in operands if dtype]
        own = next((v for v in values if np.isnan(v)), max(values, default=0.0))
        exchange.outgoing(meeting.group.rank)[:] = np.float32(own).tobytes()

    def read() -> None:
        for rank in range(size):
            if rank != meeting.group.rank:
                flags[rank] = np.frombuffer(exchange.incoming(rank), np.float32)[0]

    return flags, (send, meeting.call(exchange), read)


def _least_finite(array: Array) -> float:
    if np.isfinite(array).all():
        return 0.0
    return float("nan") if np.isnan(array).any() else float("inf")


def numbers_between(
    share: ReplicaShare, words: str, watch: RunWatch
) -> Callable[[list[Any]], list[Any]]:
    """A function from the whole numbers of the own replicas to those of all."""
    group = share.group
    if group is None:
        return lambda values: values
    nbytes = 8 * share.count
    exchange = GroupExchange.alike(group, words, nbytes, [nbytes] * group.size)

    def everywhere(values: list[Any]) -> list[Any]:
        exchange.outgoing(group.rank)[:] = np.asarray(values, np.int64).tobytes()
        exchange.run(watch)
        found: list[Any] = []
        for rank in range(group.size):
            if rank == group.rank:
                found += values
            else:
                row = np.frombuffer(exchange.incoming(rank), np.int64)
                found += [type(values[0])(value) for value in row]
        return found

    return everywhere
