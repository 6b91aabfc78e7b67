"""A program image in the memory of one replica, for a binder to make calls of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from popc_runtime.device.extents import Extents, extent_of
from popc_runtime.device.landing import Landings, with_landings
from popc_runtime.device.memory import Memory
from popc_runtime.device.ports import Ports
from popc_runtime.errors import IncompatibleArchiveError
from popc_runtime.format import (
    LOAD_PROGRAM,
    Array,
    DType,
    FloatCheck,
    Instruction,
    ProgramImage,
    Region,
    VariableSpec,
    instructions_of,
)
from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.core.random_state import RandomState
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    from popc_runtime.device.counts import BlockCounts

__all__ = [
    "IO_OPCODES",
    "BoundProgram",
    "missing_opcodes",
]

_REGIONS_OF_VARIABLES: Final = (Region.STATE, Region.REMOTE)
IO_OPCODES: Final = frozenset({"HostLoad", "HostStore"})


def missing_opcodes(image: ProgramImage) -> tuple[str, ...]:
    """Opcodes that this runtime has no kernel for, sorted."""
    used = {item.opcode for block in image.programs.values() for item in instructions_of(block)}
    return tuple(sorted(used - KERNELS.keys() - IO_OPCODES))


class BoundProgram:
    """Memory, ports, variables, random numbers and counts of one replica.

    Attributes:
        image: The programs, with all calls written out that hand something over.
        memory: The regions, and the slots that look into them.
        ports: Where host streams meet the program.
        random: The device's random numbers.
        replica: The number of the replica.
        threads: How many may work on one instruction.
        counts: How often loops and branches have run, if they are counted.
        checks: Floating-point exceptions that end a run; the load program may have them, for what
            follows from constants is what it is.
        watch: Until when a run may go on, and whether it has written variables.
        is_loaded: Whether the load program has run, so that its results are final.
        landings: The slots of inputs and results with memory of their own; there are none if it was
            not said that inputs land (``lands``).

    Raises (constructor):
        IncompatibleArchiveError: the image needs instructions that this runtime lacks.
        CorruptArchiveError: a variable lies outside of its region.
    """

    def __init__(
        self,
        image: ProgramImage,
        constants: memoryview,
        ports: Ports,
        *,
        variables: Sequence[VariableSpec] = (),
        threads: int = 1,
        replica: int = 0,
        random: RandomState,
        alike: RandomState | None = None,
        counted: Collection[str] = (),
        watch: RunWatch | None = None,
        lands: bool = False,
    ) -> None:
        _require_opcodes(image)
        if any(slot.region is Region.PARAMETER for slot in image.slots):
            from popc_runtime.device.linking import write_out

            image = write_out(image)
        self.landings = Landings()
        if lands:
            image, self.landings = with_landings(image)
        self.image = image
        self.memory = Memory(image, constants)
        self.ports = ports
        self.random = random
        self.replica = replica
        self.threads = threads
        self.checks: Collection[FloatCheck] = ()
        self.watch = watch or RunWatch()
        self.is_loaded = False
        self.counts: BlockCounts | None = None
        if counted:
            from popc_runtime.device.counts import BlockCounts

            self.counts = BlockCounts(image, counted)
        self._alike = alike or random
        self._variables = variables
        for spec in variables:
            self.memory.check(spec)
        # What the host may write counts as changing too.
        held = [(spec.offset, spec.offset + spec.nbytes) for spec in variables]
        self._held = Extents(held)
        self._mutable_state = Extents([*_mutable_state(image), *held])

    @cached_property
    def variables(self) -> dict[str, Array]:
        """The arrays of the variables, by name; the host may write to them between runs."""
        return {spec.name: self.memory.variable(spec) for spec in self._variables}

    def array(self, slot: int) -> Array:
        """The array that a slot stands for."""
        return self.memory.array(slot)

    def scalar(self, slot: int) -> Array | None:
        """The array of no dimensions that a slot of one element stands for; -1 gives ``None``."""
        return None if slot < 0 else self.array(slot).reshape(())

    def dtypes(self, indices: Sequence[int]) -> tuple[DType | None, ...]:
        """The types of an operand list; -1 gives ``None``."""
        slots = self.image.slots
        return tuple(None if index < 0 else slots[index].dtype for index in indices)

    def finals(self, indices: Sequence[int]) -> tuple[bool, ...]:
        """True for each operand that no longer changes once the load program has run."""
        return tuple(index >= 0 and self._is_final(index) for index in indices)

    def writes_variables(self, item: Instruction) -> bool:
        """True if an instruction may write to a variable."""
        if not self._held:
            return False
        slots = (self.image.slots[index] for index in item.outputs if index >= 0)
        extents = (extent_of(slot) for slot in slots if slot.region in _REGIONS_OF_VARIABLES)
        return any(self._held.meet(*extent) for extent in extents)

    def random_of(self, item: Instruction) -> RandomState:
        """The sequence that an instruction draws random numbers from."""
        random = self._alike if item.attributes.get("alike") else self.random
        number = item.attributes.get("sequence")
        return random.numbered(number) if isinstance(number, int) else random

    def _is_final(self, index: int) -> bool:
        slot = self.image.slots[index]
        if slot.region is Region.CONSTANT:
            return True
        if not self.is_loaded or slot.region is not Region.STATE:
            return False
        return not self._mutable_state.meet(*extent_of(slot))


def _require_opcodes(image: ProgramImage) -> None:
    missing = missing_opcodes(image)
    if missing:
        raise IncompatibleArchiveError(
            f"the archive uses instructions that this runtime does not have: {', '.join(missing)}",
            hint="install the popc-runtime that the archive was compiled with, or a newer one",
        )


def _mutable_state(image: ProgramImage) -> list[tuple[int, int]]:
    """Extents of STATE slots that programs other than the load program write."""
    written: list[tuple[int, int]] = []
    for name, block in image.programs.items():
        if name == LOAD_PROGRAM:
            continue
        for item in instructions_of(block):
            slots = [image.slots[index] for index in item.outputs if index >= 0]
            written.extend(extent_of(slot) for slot in slots if slot.region is Region.STATE)
    return written
