"""Which values of an output tensor a step hands back, as in PopART's AnchorReturnType."""

from __future__ import annotations

from dataclasses import dataclass

from popc_runtime.format import ReturnType

__all__ = ["Anchor", "ReturnType"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """The return type of one output; ``period`` is n for EVERY_N and 1 otherwise."""

    type: ReturnType = ReturnType.ALL
    period: int = 1

    def samples(self, batches_per_step: int) -> int:
        """How many values one step returns; 0 means a single one without a step dimension."""
        if self.type is ReturnType.ALL:
            return batches_per_step
        if self.type is ReturnType.EVERY_N:
            return batches_per_step // self.period
        return 0
