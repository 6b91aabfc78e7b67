"""The effort that a search may spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Effort"]


class Effort(NamedTuple):
    """Nodes that may be looked at, and whether time is up (never, as a rule).

    Work makes searches end in the same place everywhere, time does not.
    """

    work: int
    is_late: Callable[[], bool] = bool

    def part(self, divisor: int, spent: int = 0) -> Effort:
        """One of so many equal parts of what is left when ``spent`` has been spent."""
        return self._replace(work=(self.work - spent) // divisor)

    def is_spent(self, work: int) -> bool:
        """True if ``work`` is too much, or it is too late."""
        return work > self.work or self.is_late()
