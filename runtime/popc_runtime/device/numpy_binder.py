"""Instructions as calls of numpy's kernels, which define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from popc_runtime.device.binder import Binder
from popc_runtime.device.control import branch_call, repeat_call
from popc_runtime.device.steps import InstructionTime, Step, naming, timed, touching, walker
from popc_runtime.format import IfBlock, Instruction, RepeatBlock
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.kernels import KERNELS

if TYPE_CHECKING:
    from popc_runtime.kernels import Binding, Call, Scratch

__all__ = ["NumpyBinder"]


class NumpyBinder(Binder):
    """See `Binder`."""

    @property
    def kind(self) -> str:
        """See `Binder`."""
        return "numpy"

    @cached_property
    def scratch(self) -> Scratch:
        """Memory for temporaries, which instructions share."""
        from popc_runtime.kernels.core.binding import Scratch

        return Scratch(self.program.threads)

    def settings(self) -> AbstractContextManager[None]:
        """See `Binder`."""
        from popc_runtime.device.blas import settings_of_numpy

        return settings_of_numpy()

    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """See `Binder`."""
        return walker(steps, self.program.watch)

    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """See `Binder`."""
        return timed(steps, self.program.watch)

    def instruction(self, item: Instruction) -> list[Step]:
        """See `Binder`."""
        with naming(item):
            calls = self.calls(item)
        return [Step(call, item.name, item.opcode) for call in calls]

    def touching(self, steps: Sequence[Step]) -> list[Step]:
        """See `Binder`."""
        return touching(steps, self.program.watch)

    def calls(self, item: Instruction) -> tuple[Call, ...]:
        """The calls of every run."""
        from popc_runtime.device.transfers import load_calls, store_calls
        from popc_runtime.kernels.core.preparation import prepare

        program = self.program
        if item.opcode == "HostLoad":
            source = program.ports.inputs[str(item.attributes["stream"])]
            return load_calls(source, program.array(item.outputs[0]))
        if item.opcode == "HostStore":
            sink = program.ports.outputs[str(item.attributes["stream"])]
            return store_calls(sink, program.array(item.inputs[0]))
        binding = self.operands(item)
        calls = prepare(KERNELS[item.opcode], binding)
        if not program.checks:
            return calls
        from popc_runtime.device.checks import with_checks

        return with_checks(calls, item, binding, program.checks)

    def operands(self, item: Instruction) -> Binding:
        """See `Binder`."""
        from popc_runtime.kernels.core.binding import Binding

        program = self.program
        self.scratch.threads = program.threads
        self.scratch.reset()
        return Binding(
            inputs=program.memory.arrays(item.inputs),
            outputs=program.memory.arrays(item.outputs),
            input_dtypes=program.dtypes(item.inputs),
            output_dtypes=program.dtypes(item.outputs),
            attributes=item.attributes,
            constant=program.finals(item.inputs),
            scratch=self.scratch,
            random=program.random_of(item),
            replica=program.replica,
            calls=program.ports.calls,
        )

    def repeat(self, block: RepeatBlock) -> Step:
        """See `Binder`."""
        walk = self.walker(self.block(block.body))
        return Step(repeat_call(self.program, block, walk), block.name, "Repeat")

    def branch(self, block: IfBlock) -> Step:
        """See `Binder`."""
        walks = (self.walker(self.block(body)) for body in (block.then_body, block.else_body))
        return Step(branch_call(self.program, block, *walks), block.name, "If")
