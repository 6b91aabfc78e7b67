"""The one thing that moves data between processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

__all__ = ["Span", "Transport"]

# First byte and number of bytes of a part of a buffer.
Span: TypeAlias = "tuple[int, int]"


class Transport(Protocol):
    """Moves bytes between the processes of a group.

    Attributes:
        rank: The number of this process.
        size: How many there are.
    """

    rank: int
    size: int

    def exchange(
        self,
        outgoing: memoryview,
        sent: Sequence[Span],
        incoming: memoryview,
        received: Sequence[Span],
        is_over: Callable[[], bool],
    ) -> bool:
        """Send ``outgoing[sent[rank]]`` to each process, and fill ``incoming[received[rank]]``.

        All processes call this together.  A message of another length than its receiver expects is
        cut off, or leaves the rest as it was.  False if ``is_over`` said so meanwhile.

        Raises:
            GroupError: a process has died, or has told that it goes no further.
        """

    def tell(self, text: str) -> None:
        """Let the others know that this process goes no further."""

    def close(self) -> None:
        """Let go of the others; all have come to the end."""
