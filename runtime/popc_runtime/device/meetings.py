"""Meetings of replicas: the data that they exchange, and numbers that they agree about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from popc_runtime.device.checks import with_checks
from popc_runtime.errors import DeviceError
from popc_runtime.format import Array, DType, FloatCheck, Instruction
from popc_runtime.ground.frozen import replace
from popc_runtime.groups import ReplicaShare
from popc_runtime.kernels import KERNELS, Binding, Call, CollectiveKernel
from popc_runtime.kernels.collectives_between import (
    Meeting,
    crosses,
    is_apart,
    prepare_between,
)
from popc_runtime.kernels.collectives_numbers import flags_between, numbers_between
from popc_runtime.kernels.core.preparation import prepare_together
from popc_runtime.process.watch import RunWatch

__all__ = ["agreement", "exchange_calls"]


def exchange_calls(
    item: Instruction,
    bindings: Sequence[Binding],
    share: ReplicaShare,
    watch: RunWatch,
    checks: Collection[FloatCheck],
) -> tuple[Call, ...]:
    """The calls of a collective, given the operands of the replicas of this process."""
    kernel = KERNELS[item.opcode]
    assert isinstance(kernel, CollectiveKernel), item.opcode
    if not is_apart(bindings[0], share):
        calls = prepare_together(kernel, bindings)
        return _checked(calls, item, bindings, checks) if checks else calls
    meeting = Meeting(share, watch, f"{item.opcode} ({item.name})")
    calls = prepare_between(item.opcode, bindings, meeting)
    if not checks:
        return calls
    if not crosses(bindings[0], share):
        return _checked(calls, item, bindings, checks)
    flags, before = flags_between(bindings, meeting)
    return (*before, *_checked(calls, item, bindings, checks, flags))


def _checked(
    calls: tuple[Call, ...],
    item: Instruction,
    bindings: Sequence[Binding],
    checks: Collection[FloatCheck],
    *others: Array,
) -> tuple[Call, ...]:
    """The calls with checks around: what is not finite on one replica excuses the others.

    ``others`` are numbers that count as operands: they stand for replicas of other processes.
    """
    everything = replace(
        bindings[0],
        inputs=(*(array for binding in bindings for array in binding.inputs), *others),
        input_dtypes=(
            *(dtype for binding in bindings for dtype in binding.input_dtypes),
            *(DType.FLOAT32 for _ in others),
        ),
        outputs=tuple(array for binding in bindings for array in binding.outputs),
        output_dtypes=tuple(dtype for binding in bindings for dtype in binding.output_dtypes),
    )
    return with_checks(calls, item, everything, checks)


def agreement(name: str, share: ReplicaShare, watch: RunWatch) -> Callable[[Sequence[Array]], Any]:
    """A function that gives the number that all replicas hold, those of other processes too."""
    everywhere = numbers_between(share, f"the condition of {name}", watch)

    def agree(scalars: Sequence[Array]) -> Any:
        values = everywhere([scalar[()] for scalar in scalars])
        if any(value != values[0] for value in values):
            listed = ", ".join(str(value) for value in values)
            raise DeviceError(
                f"{name}: replicas exchange data inside, so its condition or number of iterations "
                f"must be the same on all of them, but is {listed}",
                subject=name,
                hint="compute it from values that are the same on all replicas",
            )
        return values[0]

    return agree
