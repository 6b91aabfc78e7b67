"""The numpy engine: binds a program image to memory once, then walks ready calls.

Binding order matters.  The load program (``weights_from_host``) is bound and run first, so that
when the other programs are bound, the values it computed are final and kernels may pack them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from popc_runtime.device.memory import Memory
from popc_runtime.device.ports import Ports
from popc_runtime.device.steps import (
    InstructionTime,
    Step,
    counting,
    naming,
    tell_iteration,
    timed,
    walker,
)
from popc_runtime.errors import DeviceError, IncompatibleArchiveError
from popc_runtime.format import (
    Array,
    Block,
    DType,
    FloatCheck,
    IfBlock,
    Instruction,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    VariableSpec,
    instructions_of,
)
from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.random_state import RandomState

if TYPE_CHECKING:
    from popc_runtime.device.counts import BlockCounts
    from popc_runtime.kernels import Binding, Call, Scratch

__all__ = [
    "IO_OPCODES",
    "LOAD_PROGRAM",
    "MAIN_PROGRAM",
    "Engine",
    "missing_opcodes",
]

LOAD_PROGRAM: Final = "weights_from_host"
MAIN_PROGRAM: Final = "main"
IO_OPCODES: Final = frozenset({"HostLoad", "HostStore"})


def missing_opcodes(image: ProgramImage) -> tuple[str, ...]:
    """Opcodes that this runtime has no kernel for, sorted."""
    used = {item.opcode for block in image.programs.values() for item in instructions_of(block)}
    return tuple(sorted(used - KERNELS.keys() - IO_OPCODES))


class Engine:
    """Runs the programs of one image.  Not thread-safe: it owns one arena.

    With ``replica`` it is one of several that another engine leads through the programs: it binds
    and runs the load program, and of the others what it is told to.  ``random`` are its random
    numbers then, ``alike`` those that it has in common with the other replicas.

    Attributes:
        random: The device's random numbers.
        threads: How many may work on one instruction.
        counts: How often loops and branches have run, if they are counted.

    ``checks`` are the floating-point exceptions that end a run; the load program may have them.
    ``counted`` is the program whose loops and branches are counted.

    Raises (constructor):
        IncompatibleArchiveError: the image needs instructions that this runtime lacks.
        DeviceError: the load program failed.
    """

    def __init__(
        self,
        image: ProgramImage,
        constants: memoryview,
        ports: Ports,
        *,
        variables: Sequence[VariableSpec] = (),
        seed: int = 0,
        threads: int = 1,
        replica: int | None = None,
        random: RandomState | None = None,
        alike: RandomState | None = None,
        checks: Collection[FloatCheck] = (),
        counted: str = "",
    ) -> None:
        missing = missing_opcodes(image)
        if missing:
            raise IncompatibleArchiveError(
                f"the archive uses instructions that this runtime does not have: "
                f"{', '.join(missing)}",
                hint="install the popc-runtime that the archive was compiled with, or a newer one",
            )
        if any(slot.region is Region.PARAMETER for slot in image.slots):
            from popc_runtime.device.linking import write_out

            image = write_out(image)
        self._replica = replica or 0
        self.random = random or RandomState(seed)
        self._alike = alike or self.random
        self._image = image
        self.counts: BlockCounts | None = None
        if counted:
            from popc_runtime.device.counts import BlockCounts

            self.counts = BlockCounts(image, counted)
        self._memory = Memory(image, constants)
        self._ports = ports
        self.threads = threads
        self._variables = variables
        for spec in variables:
            self._memory.check(spec)
        # What the host may write counts as changing too.
        self._mutable_state = [
            *_mutable_state(image),
            *((spec.offset, spec.offset + spec.nbytes) for spec in variables),
        ]
        self._bound: dict[str, tuple[Step, ...]] = {}
        self._walks: dict[str, Callable[[], None]] = {}
        self._checks: Collection[FloatCheck] = ()  # what follows from constants is what it is
        if LOAD_PROGRAM in image.programs:
            self.run(LOAD_PROGRAM)
        self._checks = checks
        if replica is None:
            for name in image.programs:
                self._walk_of(name)

    @property
    def kind(self) -> str:
        """What computes: "numpy", or the processors that native kernels are for."""
        return "numpy"

    @property
    def replicas(self) -> tuple[Engine, ...]:
        """The engine of each replica: this one."""
        return (self,)

    @cached_property
    def variables(self) -> dict[str, Array]:
        """The arrays of the variables, by name; the host may write to them between runs."""
        return {spec.name: self._memory.variable(spec) for spec in self._variables}

    @cached_property
    def scratch(self) -> Scratch:
        """What numpy's kernels use for temporaries."""
        from popc_runtime.kernels.binding import Scratch

        return Scratch(self.threads)

    def run(self, program: str) -> None:
        """Run one program to its end.

        Raises:
            DeviceError: an instruction failed; names it.
        """
        with self.settings():
            self._walk_of(program)()

    def profile(self, program: str) -> list[InstructionTime]:
        """Run one program and time each instruction; a block counts as one."""
        with self.settings():
            return self.timed(self._steps_of(program))

    def settings(self) -> AbstractContextManager[None]:
        """What holds while programs run."""
        from popc_runtime.device.blas import settings_of_numpy

        return settings_of_numpy()

    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """Run ``steps`` and time each."""
        return timed(steps)

    # -- binding ---------------------------------------------------------------------------------

    def _steps_of(self, program: str) -> tuple[Step, ...]:
        if program not in self._bound:
            self._bound[program] = self.bind_block(self._image.programs[program])
        return self._bound[program]

    def _walk_of(self, program: str) -> Callable[[], None]:
        if program not in self._walks:
            self._walks[program] = self.walker(self._steps_of(program))
        return self._walks[program]

    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """A function that runs ``steps`` one after another."""
        return walker(steps)

    def bind_block(self, block: Block) -> tuple[Step, ...]:
        """The ready calls of ``block``, in order."""
        steps: list[Step] = []
        for item in block:
            if isinstance(item, Instruction):
                steps.extend(self._bind_instruction(item))
            elif isinstance(item, RepeatBlock):
                steps.append(Step(self._bind_repeat(item), item.name, "Repeat"))
            elif isinstance(item, IfBlock):
                steps.append(Step(self._bind_if(item), item.name, "If"))
            else:
                steps.extend(self._steps_of(item.program))
        return tuple(steps)

    def _bind_instruction(self, item: Instruction) -> list[Step]:
        with naming(item):
            calls = self._calls(item)
        return [Step(call, item.name, item.opcode) for call in calls]

    def _calls(self, item: Instruction) -> tuple[Call, ...]:
        from popc_runtime.device.transfers import load_calls, store_calls
        from popc_runtime.kernels.preparation import prepare

        if item.opcode == "HostLoad":
            source = self._ports.inputs[str(item.attributes["stream"])]
            return load_calls(source, self.array(item.outputs[0]))
        if item.opcode == "HostStore":
            sink = self._ports.outputs[str(item.attributes["stream"])]
            return store_calls(sink, self.array(item.inputs[0]))
        binding = self.binding(item)
        calls = prepare(KERNELS[item.opcode], binding)
        if not self._checks:
            return calls
        from popc_runtime.device.checks import with_checks

        return with_checks(calls, item, binding, self._checks)

    def binding(self, item: Instruction) -> Binding:
        """What a kernel is given for ``item``."""
        from popc_runtime.kernels.binding import Binding

        self.scratch.threads = self.threads
        self.scratch.reset()
        return Binding(
            inputs=self._memory.arrays(item.inputs),
            outputs=self._memory.arrays(item.outputs),
            input_dtypes=self.dtypes(item.inputs),
            output_dtypes=self.dtypes(item.outputs),
            attributes=item.attributes,
            constant=self.finals(item.inputs),
            scratch=self.scratch,
            random=self.random_of(item),
            replica=self._replica,
        )

    def random_of(self, item: Instruction) -> RandomState:
        """The sequence that an instruction draws random numbers from."""
        random = self._alike if item.attributes.get("alike") else self.random
        number = item.attributes.get("sequence")
        return random.numbered(number) if isinstance(number, int) else random

    def dtypes(self, indices: Sequence[int]) -> tuple[DType | None, ...]:
        """The types of an operand list; -1 gives ``None``."""
        slots = self._image.slots
        return tuple(None if index < 0 else slots[index].dtype for index in indices)

    def finals(self, indices: Sequence[int]) -> tuple[bool, ...]:
        """Whether operands no longer change once the load program has run."""
        return tuple(index >= 0 and self._is_final(index) for index in indices)

    def _is_final(self, index: int) -> bool:
        """Whether the slot's contents no longer change once the load program has run."""
        slot = self._image.slots[index]
        if slot.region is Region.CONSTANT:
            return True
        loaded = LOAD_PROGRAM in self._bound and slot.region is Region.STATE
        low, high = _extent(slot)
        return loaded and not any(low < end and start < high for start, end in self._mutable_state)

    def _bind_repeat(self, block: RepeatBlock) -> Call:
        walk = self.walker(self.bind_block(block.body))
        condition = self._scalar(block.condition_slot)
        counter = self._scalar(block.counter_slot)
        limit = self._scalar(block.count_slot)
        row = self.counts.row(block) if self.counts else None

        def repeat() -> None:
            count = max(0, int(limit[()])) if limit is not None else block.count
            iteration = 0
            try:
                while (count < 0 or iteration < count) and (condition is None or condition[()]):
                    if counter is not None:
                        counter[()] = iteration
                    walk()
                    iteration += 1
            except DeviceError as error:
                tell_iteration(error, block, iteration)
                raise
            if row is not None:
                row[0] += iteration

        return repeat

    def _bind_if(self, block: IfBlock) -> Call:
        condition = self.array(block.condition_slot).reshape(())
        then_walk = self.walker(self.bind_block(block.then_body))
        else_walk = self.walker(self.bind_block(block.else_body))

        def branch() -> None:
            if condition[()]:
                then_walk()
            else:
                else_walk()

        return counting(branch, condition, [self.counts.row(block)]) if self.counts else branch

    def array(self, slot: int) -> Array:
        """The array that a slot stands for."""
        return self._memory.array(slot)

    def _scalar(self, slot: int) -> Array | None:
        return None if slot < 0 else self.array(slot).reshape(())


def _extent(slot: Slot) -> tuple[int, int]:
    """First byte and end of the bytes that a slot can touch."""
    strides = slot.strides
    if strides is None:
        size = slot.dtype.itemsize
        for dim in slot.shape:
            size *= dim
        return slot.offset, slot.offset + size
    spans = [(dim - 1) * step for dim, step in zip(slot.shape, strides, strict=True) if dim > 0]
    low = slot.offset + sum(span for span in spans if span < 0)
    high = slot.offset + sum(span for span in spans if span > 0) + slot.dtype.itemsize
    return low, high


def _mutable_state(image: ProgramImage) -> list[tuple[int, int]]:
    """Extents of STATE slots that programs other than the load program write."""
    written: list[tuple[int, int]] = []
    for name, block in image.programs.items():
        if name == LOAD_PROGRAM:
            continue
        for item in instructions_of(block):
            slots = [image.slots[index] for index in item.outputs if index >= 0]
            written.extend(_extent(slot) for slot in slots if slot.region is Region.STATE)
    return written
