"""The parts of a Loop by name; see `popc.ops.control` for its form."""

from __future__ import annotations

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.ops.control import first_capture
from popc_runtime.ground.frozen import frozen

__all__ = ["FIRST_STATE", "LoopParts"]

FIRST_STATE = 2  # operand of the op, input of the body


@frozen
class LoopParts:
    """A reading of ``op``, which must be a Loop."""

    op: Op

    @property
    def body(self) -> Graph:
        """The body."""
        return self.op.subgraphs["body"]

    @property
    def states(self) -> int:
        """The number of states."""
        return first_capture(self.op) - FIRST_STATE

    @property
    def trip_count(self) -> int:
        """The number of iterations, or the most if a condition may end them; -1: an operand."""
        return integer(self.op.attributes, "trip_count")

    @property
    def conditional(self) -> bool:
        """True if a condition may end the loop."""
        return bool(self.op.attributes["conditional"])

    @property
    def first_capture(self) -> int:
        """The number of the first operand that is a capture."""
        return first_capture(self.op)

    @property
    def formals(self) -> list[Tensor]:
        """The states as the body sees them."""
        return self.body.inputs[FIRST_STATE : self.first_capture]

    @property
    def carried(self) -> list[Tensor]:
        """The tensors that the body hands to the next iteration, state by state."""
        return self.body.outputs[1 : 1 + self.states]

    @property
    def scans(self) -> list[Tensor]:
        """The tensors that the body adds to each stack."""
        return self.body.outputs[1 + self.states :]

    @property
    def finals(self) -> list[Tensor]:
        """The states after the last iteration."""
        return self.op.outputs[: self.states]

    @property
    def stacks(self) -> list[Tensor]:
        """The stacked scans."""
        return self.op.outputs[self.states :]
