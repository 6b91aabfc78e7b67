"""Ready calls, how they are walked and timed, and what their errors tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint
from time import perf_counter

from popc_runtime.errors import DeviceError, PopcError
from popc_runtime.format import Array, Instruction, RepeatBlock
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    from popc_runtime.kernels import Call

__all__ = [
    "InstructionTime",
    "Step",
    "cannot_be_bound",
    "counting",
    "naming",
    "tell_iteration",
    "timed",
    "touching",
    "walker",
]


@frozen
class InstructionTime:
    """Time spent in one instruction during one run, in seconds.

    ``native`` says whether a native kernel computed it.
    """

    name: str
    opcode: str
    seconds: float
    native: bool = False


@frozen
class Step:
    """One ready call and the instruction it belongs to."""

    call: Call
    name: str
    opcode: str


def counting(branch: Call, condition: Array, rows: Sequence[list[int]]) -> Call:
    """``branch``, which ``condition`` decides about, counting which way it went in ``rows``."""

    def counted() -> None:
        way = 0 if condition[()] else 1  # the branch may write to the condition's memory
        branch()
        for row in rows:
            row[way] += 1

    return counted


@contextmanager
def naming(item: Instruction) -> Iterator[None]:
    """Let an error that binding ``item`` runs into tell which instruction it was.

    Validation keeps slots in bounds; what is left is operands that do not fit the opcode.
    """
    try:
        yield
    except PopcError:
        raise
    except Exception as error:
        raise cannot_be_bound(item.opcode, item.name, error) from error


def cannot_be_bound(opcode: str, name: str, cause: Exception) -> DeviceError:
    """The error for an instruction that does not get ready to run."""
    reason = f"{cause} is missing" if isinstance(cause, KeyError) else str(cause) or repr(cause)
    return DeviceError(
        f"instruction {opcode} ({name}) cannot be prepared to run: {reason}",
        subject=name,
        hint="the archive was changed, or compiled for another version: compile the model again",
    )


def tell_iteration(error: DeviceError, block: RepeatBlock, iteration: int) -> None:
    """Let ``error`` tell in which iteration of a loop it happened."""
    where = f"in iteration {iteration} (from 0) of {block.name or 'a loop'}"
    error.details = (*error.details, where)


def walker(steps: Sequence[Step], watch: RunWatch) -> Callable[[], None]:
    """A function that makes the calls of ``steps`` one after another, until ``watch`` stops it."""
    calls = tuple(step.call for step in steps)

    def watched(remaining: Iterator[Call]) -> None:
        for call in remaining:
            call()
            if watch.is_over():
                step = steps[len(calls) - length_hint(remaining) - 1]
                raise watch.time_up(step.opcode, step.name)
        if not calls and watch.is_over():  # the body of a loop that has nothing in it
            raise watch.time_up()

    def walk() -> None:
        remaining = iter(calls)
        try:
            if watch.deadline:
                watched(remaining)
            for call in remaining:
                call()
        except PopcError:
            raise
        except Exception as error:
            # The iterator knows how far it came; counting in the loop would cost every call.
            step = steps[len(calls) - length_hint(remaining) - 1]
            raise DeviceError(
                f"{step.opcode} ({step.name}) failed: {error}", subject=step.name
            ) from error

    return walk


def touching(steps: Sequence[Step], watch: RunWatch) -> list[Step]:
    """The same steps, of which the first tells ``watch`` that variables are being written."""
    call = steps[0].call

    def first() -> None:
        watch.touch()
        call()

    return [replace(steps[0], call=first), *steps[1:]]


def timed(steps: Sequence[Step], watch: RunWatch) -> list[InstructionTime]:
    """Call ``steps`` one after another, and time each."""
    times: list[InstructionTime] = []
    for step in steps:
        walk = walker((step,), watch)
        start = perf_counter()
        walk()
        times.append(InstructionTime(step.name, step.opcode, perf_counter() - start))
    return times
