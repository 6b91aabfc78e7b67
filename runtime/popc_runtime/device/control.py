"""Loops and branches that Python walks."""

from __future__ import annotations

from collections.abc import Callable

from popc_runtime.device.bound_program import BoundProgram
from popc_runtime.device.steps import counting, tell_iteration
from popc_runtime.errors import DeviceError
from popc_runtime.format import IfBlock, RepeatBlock
from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from popc_runtime.kernels import Call

__all__ = ["branch_call", "repeat_call"]


def repeat_call(program: BoundProgram, block: RepeatBlock, walk: Callable[[], None]) -> Call:
    """The call that runs a loop; ``walk`` runs its body once."""
    condition = program.scalar(block.condition_slot)
    counter = program.scalar(block.counter_slot)
    limit = program.scalar(block.count_slot)
    row = program.counts.row(block) if program.counts else None

    def repeat() -> None:
        count = max(0, int(limit[()])) if limit is not None else block.count
        iteration = 0
        try:
            while (count < 0 or iteration < count) and (condition is None or condition[()]):
                if counter is not None:
                    counter[()] = iteration
                walk()
                iteration += 1
        except DeviceError as error:
            tell_iteration(error, block, iteration)
            raise
        if row is not None:
            row[0] += iteration

    return repeat


def branch_call(
    program: BoundProgram,
    block: IfBlock,
    then_walk: Callable[[], None],
    else_walk: Callable[[], None],
) -> Call:
    """The call that runs one of two branches."""
    condition = program.array(block.condition_slot).reshape(())

    def branch() -> None:
        if condition[()]:
            then_walk()
        else:
            else_walk()

    counts = program.counts
    return counting(branch, condition, [counts.row(block)]) if counts else branch
