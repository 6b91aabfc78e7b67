"""Which values of an output tensor a step hands back, as in PopART's AnchorReturnType."""

from __future__ import annotations

from dataclasses import dataclass

from popc_runtime.format import ReturnType

__all__ = ["Anchor"]


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

    def problem(self, batches_per_step: int) -> str:
        """Why this cannot be used with that many batches per step; "" if it can."""
        if self.type is not ReturnType.EVERY_N:
            return ""
        if not 0 < self.period <= batches_per_step:
            return f"n is {self.period}, but must be from 1 to batches_per_step ({batches_per_step})"
        if batches_per_step % self.period:
            return f"n is {self.period}, which does not divide batches_per_step ({batches_per_step})"
        return ""

    def __str__(self) -> str:
        return f"every_n:{self.period}" if self.type is ReturnType.EVERY_N else self.type.value

    @classmethod
    def parse(cls, value: object) -> Anchor:
        """From "all", "final", "sum", "every_n:2" or {"type": "every_n", "n": 2}.

        Raises:
            ValueError: says what is wrong.
        """
        period: object = None
        if isinstance(value, dict):
            unknown = sorted(set(value) - {"type", "n"})
            if unknown:
                raise ValueError(f"has no field {unknown[0]!r}, only type and n")
            value, period = value.get("type"), value.get("n")
        if not isinstance(value, str):
            raise ValueError('must be a return type, as in "final"')
        name, separator, number = value.lower().partition(":")
        if separator:
            period = int(number) if number.isdecimal() else number
        choices = [kind.value for kind in ReturnType]
        if name not in choices:
            raise ValueError(f"is {value!r}, but must be one of {', '.join(choices)}")
        kind = ReturnType(name)
        if kind is ReturnType.EVERY_N and not isinstance(period, int):
            raise ValueError("needs n, the return period, as in every_n:2")
        if kind is not ReturnType.EVERY_N and period is not None:
            raise ValueError("has n, which only every_n takes")
        return cls(kind, period if isinstance(period, int) else 1)
