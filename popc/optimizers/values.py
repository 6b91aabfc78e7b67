"""Hyper-parameters: numbers that are part of the program, or that the host may change."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from math import inf, isfinite
from typing import Any, Final

__all__ = ["HyperParameterSpec", "Value", "described", "hyper_parameters_of"]

_KEY: Final = "hyper_parameter"


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a hyper-parameter.

    Attributes:
        value: The number; a flag is 0 or 1.
        const: Whether it is part of the program.  If not, it is what a variable of the program
            starts with, which the host may change between runs.
    """

    value: float
    const: bool = True


@dataclass(frozen=True, slots=True)
class HyperParameterSpec:
    """The facts about a hyper-parameter, whatever its value.

    Attributes:
        name: In snake_case.
        stem: What the names of its variables begin with, as in PopART.
        low, high: Its range.
        open_low, open_high: Whether ``low`` and ``high`` themselves are excluded.
        boundless: Whether infinity is a value.
        flag: Whether it is a yes or no, which decides about the ops of the program.
        per_tensor: Whether weights may have values of their own.
    """

    name: str
    stem: str
    low: float = 0.0
    high: float = inf
    open_low: bool = False
    open_high: bool = False
    boundless: bool = False
    flag: bool = False
    per_tensor: bool = True

    def problem(self, value: float) -> str:
        """The reason why this cannot be the value, to follow the name; "" if it can."""
        if not (isfinite(value) or (self.boundless and value == inf)):
            return f"is {value}, but must be a finite number"
        too_low = value <= self.low if self.open_low else value < self.low
        too_high = value >= self.high if self.open_high else value > self.high
        if too_low or (too_high and value != inf):
            return f"is {value:g}, but must be {self.range}"
        return ""

    @property
    def range(self) -> str:
        """The range in words: "at least 0 and less than 1"."""
        low = f"{'more than' if self.open_low else 'at least'} {self.low:g}"
        if self.high == inf:
            return low
        return f"{low} and {'less than' if self.open_high else 'at most'} {self.high:g}"


def described(stem: str, **more: Any) -> dict[str, Any]:
    """The metadata of a dataclass field that is a hyper-parameter."""
    return {_KEY: {"stem": stem, **more}}


def hyper_parameters_of(optimizer: Any) -> list[HyperParameterSpec]:
    """The hyper-parameters that a spec, or its class, declares, in order."""
    return [spec for spec in map(_spec_of, fields(optimizer)) if spec is not None]


def _spec_of(declared: Field[Any]) -> HyperParameterSpec | None:
    known = declared.metadata.get(_KEY)
    return None if known is None else HyperParameterSpec(declared.name, **known)
