"""Until when a run may go on, and whether it has begun to write variables."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from popc_runtime.errors import RunTimeoutError, UsageError

__all__ = ["RunWatch", "nanoseconds_of", "time_left"]


def nanoseconds_of(timeout: float | None) -> int:
    """Seconds that a run may take, in nanoseconds; 0 for as long as it takes.

    Raises:
        UsageError: it is not a number above zero.
    """
    if timeout is None:
        return 0
    if not 0 < timeout < float("inf"):
        raise UsageError(
            f"timeout must be a number of seconds above 0, not {timeout!r}",
            hint="leave it out, and a run takes as long as it takes",
        )
    return max(1, round(timeout * 1e9))


def time_left(timeout: float | None) -> Callable[[], float | None]:
    """A function that tells how much of ``timeout`` is left, of which each of some runs has a part.

    Raises:
        UsageError: see `nanoseconds_of`.
    """
    allowed = nanoseconds_of(timeout)
    end = monotonic_ns() + allowed
    return lambda: max(1, end - monotonic_ns()) / 1e9 if allowed else None


class RunWatch:
    """The deadline of the run that is going on, and what it has written, for all replicas.

    Attributes:
        deadline: When it is stopped, by `time.monotonic_ns`; 0 for never.
        allowed: The time that it was given, in nanoseconds.
        touched: One byte, which native programs write to: whether variables are being written.
    """

    __slots__ = ("allowed", "deadline", "touched")

    def __init__(self) -> None:
        self.deadline = self.allowed = 0
        self.touched = bytearray(1)

    def begin(self, allowed: int = 0) -> None:
        """A run begins that may take so many nanoseconds; 0 for as long as it takes."""
        self.allowed = allowed
        self.deadline = monotonic_ns() + allowed if allowed else 0
        self.touched[0] = 0

    def is_over(self) -> bool:
        """True if the time is up."""
        return self.deadline > 0 and monotonic_ns() >= self.deadline

    def time_up(self, opcode: str = "", name: str = "") -> RunTimeoutError:
        """The error for a run that was stopped in an instruction or a loop."""
        where = f", in {opcode} ({name})" if opcode else ""
        return RunTimeoutError(
            f"the run was stopped after {self.allowed / 1e9:g} s{where}",
            subject=name,
            hint="allow more time, if the program is to be trusted",
        )

    def touch(self) -> None:
        """Note that variables are being written from now on."""
        self.touched[0] = 1
