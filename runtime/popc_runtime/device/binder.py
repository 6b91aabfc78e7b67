"""From blocks of instructions to ready steps: the one difference between the engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from popc_runtime.device.bound_program import BoundProgram
from popc_runtime.device.steps import InstructionTime, Step
from popc_runtime.format import Block, IfBlock, Instruction, RepeatBlock
from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from popc_runtime.format import TensorSpec
    from popc_runtime.kernels import Binding
    from popc_runtime.native import DirectRun

__all__ = ["Binder"]


class Binder(ABC):
    """Makes steps of a program's blocks, and walks them.

    Attributes:
        program: What is bound.
    """

    def __init__(self, program: BoundProgram) -> None:
        self.program = program
        self._programs: dict[str, tuple[Step, ...]] = {}

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of kernels: "numpy", or the processors that native ones are for."""

    @abstractmethod
    def instruction(self, item: Instruction) -> list[Step]:
        """The steps of one instruction.

        Raises:
            DeviceError: it cannot be bound; so does every other method here.
        """

    @abstractmethod
    def touching(self, steps: Sequence[Step]) -> list[Step]:
        """The same steps, of which the first tells the watch that variables are being written."""

    @abstractmethod
    def repeat(self, block: RepeatBlock) -> Step:
        """A loop as one step."""

    @abstractmethod
    def branch(self, block: IfBlock) -> Step:
        """A branch as one step."""

    @abstractmethod
    def operands(self, item: Instruction) -> Binding:
        """The operands of an instruction as numpy's kernels are given them."""

    @abstractmethod
    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """A function that runs ``steps`` one after another."""

    def direct(
        self, walk: Callable[[], None], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> DirectRun | None:
        """A function that runs what ``walk`` does on arrays, past the ports; if there is one."""
        del walk, inputs, outputs
        return None

    @abstractmethod
    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """Run ``steps`` and time each; a block counts as one."""

    @abstractmethod
    def settings(self) -> AbstractContextManager[None]:
        """Settings of the process that hold while the steps that were bound so far run."""

    def steps_of(self, name: str) -> tuple[Step, ...]:
        """The steps of a named program, which is bound once."""
        if name not in self._programs:
            self._programs[name] = self.block(self.program.image.programs[name])
        return self._programs[name]

    def block(self, block: Block) -> tuple[Step, ...]:
        """The steps of ``block``, in order."""
        steps: list[Step] = []
        touched = False
        for item in block:
            if isinstance(item, Instruction):
                own = self.instruction(item)
                if own and not touched and self.program.writes_variables(item):
                    own, touched = self.touching(own), True
                steps.extend(own)
            elif isinstance(item, RepeatBlock):
                steps.append(self.repeat(item))
            elif isinstance(item, IfBlock):
                steps.append(self.branch(item))
            else:
                steps.extend(self.steps_of(item.program))
        return tuple(steps)
