"""The rounding of the results of an instruction; `rounding` does it."""

from __future__ import annotations

from popc_runtime.format.program import Attributes
from popc_runtime.ground.frozen import frozen

__all__ = ["Rounding"]


@frozen
class Rounding:
    """The rounding of the results of an instruction.

    Attributes:
        stochastic: To one of the two neighbours at random; otherwise to nearest, which is left to
            the conversion.
        overflow: What finite numbers that would become infinite become: "infinity", "nan", or
            "largest", the largest number of the format with their sign.
    """

    stochastic: bool = False
    overflow: str = "infinity"

    @classmethod
    def of(cls, attributes: Attributes) -> Rounding:
        """The mode that an instruction asks for by its attributes ``rounding`` and ``overflow``."""
        stochastic = attributes.get("rounding") == "stochastic"
        return cls(stochastic, str(attributes.get("overflow", "infinity")))

    def __bool__(self) -> bool:
        """True if it differs from what a conversion does."""
        return self.stochastic or self.overflow != "infinity"
