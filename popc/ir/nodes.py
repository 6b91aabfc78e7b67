"""What graphs consist of: tensors and ops.  Their links are changed only through `Graph`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from popc.ir.settings import OpSettings
from popc.ir.types import AttributeMap, TensorType
from popc_runtime.format import Array, VariableRole

if TYPE_CHECKING:
    from popc.ir.graph import Graph

__all__ = ["Op", "Tensor", "TensorKind"]


class TensorKind(StrEnum):
    """The origin of a tensor's value."""

    ACTIVATION = "activation"  # the output of an op
    INPUT = "input"  # an input of the graph
    CONSTANT = "constant"  # data known at compile time
    VARIABLE = "variable"  # lives on the device from run to run


@dataclass(eq=False, slots=True)
class Tensor:
    """A value.

    ``data`` is the value of a constant, ``initial`` that of a variable before the first run
    (``None``: zeros); both are stored per `DType.storage`.  ``role`` is set for variables.
    ``rows`` is empty for a variable that all replicas share; otherwise it says for each replica
    which of the several values it holds.  If these are parts of one flat value, padded at the end,
    ``whole`` is the shape of that, and ``initial`` is the whole.  A variable may be kept
    ``off_chip``, in streaming memory.
    """

    name: str
    type: TensorType
    kind: TensorKind
    data: Array | None = None
    initial: Array | None = None
    role: VariableRole | None = None
    rows: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    producer: Op | None = None
    off_chip: bool = False
    # op -> number of operand positions that read this tensor, in order of first use
    uses: dict[Op, int] = field(default_factory=dict["Op", int])

    @property
    def is_constant(self) -> bool:
        """True if the value is known at compile time."""
        return self.kind is TensorKind.CONSTANT

    @property
    def users(self) -> tuple[Op, ...]:
        """Ops that read this tensor, each once, in order of first use."""
        return tuple(self.uses)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False, slots=True)
class Op:
    """One operation.  ``inputs`` and ``outputs`` are changed only through `Graph`."""

    op_type: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: AttributeMap
    settings: OpSettings
    subgraphs: dict[str, Graph]

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def operand(self, index: int) -> Tensor:
        """A required input; asking for an absent one is a bug."""
        tensor = self.inputs[index]
        assert tensor is not None, f"{self.op_type} has no operand {index}"
        return tensor

    def optional(self, index: int) -> Tensor | None:
        """An input that may be absent or beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def present_inputs(self) -> list[Tensor]:
        """The inputs that are not absent, in order."""
        inputs = self.inputs
        if None not in inputs:
            present: list[Tensor] = inputs.copy()  # type: ignore[assignment]
            return present
        return [tensor for tensor in inputs if tensor is not None]

    def __repr__(self) -> str:
        return f"{self.op_type}({', '.join(t.name for t in self.outputs)})"
