"""The values of an output tensor that a step hands back, as in PopART's AnchorReturnType."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from popc.options.kinds import Kind
from popc_runtime.errors import SpokenHint
from popc_runtime.format import DType, ReturnType
from popc_runtime.ground.frozen import frozen

__all__ = ["Anchor", "AnchorKind", "asking_for_all"]

# What sums may be added up in.
_SUM_TYPES: Final = tuple(
    dtype.value for dtype in DType if dtype is not DType.BOOL and not dtype.is_float8
)

_DIGITS: Final = re.compile("[0-9]{1,18}")


@frozen
class Anchor:
    """The return type of one output.

    ``period`` is n for EVERY_N and 1 otherwise.  ``dtype`` is the element type in which SUM adds
    and returns; ``None``: that of the output.
    """

    type: ReturnType = ReturnType.ALL
    period: int = 1
    dtype: DType | None = None

    def samples(self, batches_per_step: int) -> int:
        """The number of values of one step; 0 means a single one without a step dimension."""
        if self.type is ReturnType.ALL:
            return batches_per_step
        if self.type is ReturnType.EVERY_N:
            return batches_per_step // self.period
        return 0

    def problem(self, batches_per_step: int) -> str:
        """The reason why this cannot be used with that many batches per step; "" if it can."""
        if self.type is not ReturnType.EVERY_N:
            return ""
        if not 0 < self.period <= batches_per_step:
            return (
                f"n is {self.period}, but must be from 1 to batches_per_step ({batches_per_step})"
            )
        if batches_per_step % self.period:
            return (
                f"n is {self.period}, which does not divide batches_per_step ({batches_per_step})"
            )
        return ""

    def __str__(self) -> str:
        if self.type is ReturnType.EVERY_N:
            return f"every_n:{self.period}"
        return self.type.value if self.dtype is None else f"{self.type.value}:{self.dtype.value}"

    @classmethod
    def parse(cls, value: object) -> Anchor:
        """From "all", "final", "sum", "every_n:2" or {"type": "every_n", "n": 2}.

        "sum:float32", or {"type": "sum", "dtype": "float32"}, says in which type to add.  Letter
        case does not matter, and PopART's EVERYN is understood.

        Raises:
            ValueError: says what is wrong, as what follows the name of an option.
        """
        if isinstance(value, cls):
            return value
        name, period, dtype = _parts(value)
        if name not in ReturnType.__members__.values():
            choices = ", ".join(ReturnType)
            raise ValueError(f"is {value!r}, but must be one of {choices}")
        kind = ReturnType(name)
        if kind is ReturnType.SUM and period is None:
            return cls(kind, dtype=_dtype(dtype))
        if dtype is not None:
            raise ValueError(f"is {kind}, which takes no dtype: only sum does")
        if kind is not ReturnType.EVERY_N:
            if period is not None:
                raise ValueError(f"is {kind}, which takes no n: only every_n does")
            return cls(kind)
        if type(period) is int:
            return cls(kind, period)
        raise ValueError("is every_n, which needs n, the return period, as in every_n:2")


class AnchorKind(Kind[Anchor]):
    """A return type."""

    called: ClassVar[str] = "anchor"
    called_in_tables: ClassVar[str] = "anchors"

    def parse(self, value: object) -> Anchor:
        """Words such as ``every_n:2``, or a table of type and n."""
        return Anchor.parse(value)


def asking_for_all(outputs: Iterable[str]) -> SpokenHint:
    """The option to set so that all values of ``outputs`` are returned."""
    names = tuple(outputs)
    import shlex

    return SpokenHint(
        f'options={{"anchors": {dict.fromkeys(names, "all")}}}',
        " ".join(f"--set {shlex.quote(f'anchors.{name}=all')}" for name in names),
    )


def _dtype(name: object) -> DType | None:
    if name is None or (isinstance(name, str) and name in _SUM_TYPES):
        return None if name is None else DType(name)
    raise ValueError(f"is a sum in {name!r}, but must be in one of {', '.join(_SUM_TYPES)}")


def _parts(value: object) -> tuple[str, object, object]:
    """Return type in our spelling, n and dtype; ``None`` for those that are not given."""
    name, period, dtype = value, None, None
    if isinstance(value, Mapping):
        unknown = sorted(map(str, value.keys() - {"type", "n", "dtype"}))
        if unknown:
            raise ValueError(f"has the field {unknown[0]!r}, but takes only type, n and dtype")
        name, period, dtype = value.get("type"), value.get("n"), value.get("dtype")
    if not isinstance(name, str):
        raise ValueError('must be a return type, such as "final"')
    name, separator, argument = name.lower().partition(":")
    if separator and name == ReturnType.SUM.value:
        dtype = argument
    elif separator:
        period = int(argument) if _DIGITS.fullmatch(argument) else argument
    return ("every_n" if name == "everyn" else name), period, dtype
