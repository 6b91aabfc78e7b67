"""The operands of an instruction, and its attributes, whatever stands for an operand."""

from __future__ import annotations

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Attributes
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Generic, TypeVar

__all__ = ["Operands"]

_A = TypeVar("_A")


@frozen
class Operands(Generic[_A]):
    """The operands of an instruction.

    Attributes:
        inputs: One per operand, ``None`` where an optional operand is absent.  They may be strided
            or broadcast.  Nothing may write to them.
        outputs: What is to be filled.  They are C-contiguous unless the op's spec allows strided
            outputs.  An output may share memory with an input only where the op's spec lists that
            input under ``inplace``.  ``None`` where the result is not wanted.
        input_dtypes, output_dtypes: DTypes of the operands.
        attributes: Static parameters.
        constant: For each input, whether its contents are final when the program is bound, so
            that packing it once is allowed.
    """

    inputs: tuple[_A | None, ...]
    outputs: tuple[_A | None, ...]
    input_dtypes: tuple[DType | None, ...]
    output_dtypes: tuple[DType | None, ...]
    attributes: Attributes
    constant: tuple[bool, ...]

    def input(self, index: int) -> _A:
        """A required input.

        Raises:
            ValueError: the operand is absent (a malformed archive).
        """
        array = self.inputs[index] if index < len(self.inputs) else None
        if array is None:
            raise ValueError(f"operand {index} is required")
        return array

    def optional(self, index: int) -> _A | None:
        """An optional input, ``None`` where absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> _A:
        """A required output.

        Raises:
            ValueError: the output is absent (a malformed archive).
        """
        array = self.outputs[index] if index < len(self.outputs) else None
        if array is None:
            raise ValueError(f"output {index} is required")
        return array

    def optional_output(self, index: int) -> _A | None:
        """An output that may not be wanted."""
        return self.outputs[index] if index < len(self.outputs) else None

    def is_constant(self, index: int) -> bool:
        """True if input ``index`` is present and final at bind time."""
        return index < len(self.constant) and self.constant[index]

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ValueError(f"attribute {name!r} must be an integer, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, (int, float)):
            raise ValueError(f"attribute {name!r} must be a number, not {value!r}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, str):
            raise ValueError(f"attribute {name!r} must be a string, not {value!r}")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list-of-integers attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise ValueError(f"attribute {name!r} must be a list of integers, not {value!r}")
        return tuple(int(item) for item in value)

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """A list-of-floats attribute."""
        value = self.attributes[name] if default is None else self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise ValueError(f"attribute {name!r} must be a list of numbers, not {value!r}")
        return tuple(float(item) for item in value)
