"""The replicas of a program that one process runs.

Each replica has memory and random numbers of its own; constants are shared.  Between the points
where replicas meet (collectives and host transfers) each runs a segment of calls by itself, one
after another or, if that pays, on several threads.  Blocks with such points inside are walked by
all replicas together; then all must agree about the condition.  Where other processes run more
replicas, these meet too: see `popc_runtime.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.device.binder import Binder
from popc_runtime.device.blas import settings_of_numpy
from popc_runtime.device.bound_program import IO_OPCODES, BoundProgram
from popc_runtime.device.engine import Engine
from popc_runtime.device.linking import write_out
from popc_runtime.device.meetings import agreement, exchange_calls
from popc_runtime.device.ports import InputPort, Ports
from popc_runtime.device.replicated_random import ReplicatedRandom
from popc_runtime.device.steps import (
    InstructionTime,
    Step,
    counting,
    naming,
    tell_iteration,
    timed,
    walker,
)
from popc_runtime.device.transfers import load_calls, store_calls
from popc_runtime.errors import DeviceError, PopcError
from popc_runtime.format import (
    LOAD_PROGRAM,
    Array,
    Block,
    CallBlock,
    FloatCheck,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    RepeatBlock,
    TensorSpec,
    VariableSpec,
)
from popc_runtime.ground.frozen import frozen
from popc_runtime.groups import ReplicaShare
from popc_runtime.kernels import KERNELS, Call, CollectiveKernel, RandomState
from popc_runtime.kernels.core.parallel import together
from popc_runtime.process.watch import RunWatch

__all__ = ["ReplicatedEngine"]

# Side effects whose order the user sees; no thread may overtake another.
_ORDERED: Final = frozenset({"Abort", "HostCall", "PrintTensor"})
# A segment is run on several threads if its instructions are long enough: see `_pays`.
_LONG_SEGMENT: Final = 1 << 18  # bytes of all operands
_LONG_INSTRUCTION: Final = 1 << 15  # bytes of the operands of one, on average


@frozen
class _Segment:
    """The steps that each replica runs by itself.

    Attributes:
        steps: Those of each replica.
        walks: What runs them, for each replica.
        shared: Whether threads share the replicas.
    """

    steps: tuple[tuple[Step, ...], ...]
    walks: tuple[Call, ...]
    shared: bool

    def call(self, threads: int) -> Call:
        """The call that runs all replicas."""
        return together(self.walks, threads) if self.shared else partial(_one_by_one, self.walks)


_Stage: TypeAlias = "_Segment | Step"


def _on_replica(number: int, walk: Call) -> None:
    try:
        walk()
    except PopcError as error:
        error.details = (*error.details, f"on replica {number}")
        raise


def _one_by_one(walks: Sequence[Call]) -> None:
    for walk in walks:
        walk()


class ReplicatedEngine:
    """Runs the programs of one image on several replicas.  Not thread-safe.

    Attributes:
        replicas: The engine of each replica.
        random: The random numbers of all of them.

    Raises (constructor):
        IncompatibleArchiveError: the image needs instructions that this runtime lacks.
        DeviceError: the load program failed.
    """

    def __init__(
        self,
        make_binder: Callable[[BoundProgram], Binder],
        image: ProgramImage,
        constants: memoryview,
        ports: Ports,
        *,
        share: ReplicaShare,
        variables: Sequence[VariableSpec] = (),
        seed: int = 0,
        threads: int = 1,
        checks: Collection[FloatCheck] = (),
        identical_seeds: bool = False,
        counted: Collection[str] = (),
        late: Collection[str] = (),
        watch: RunWatch | None = None,
    ) -> None:
        self._watch = watch = watch or RunWatch()
        self._image = image = write_out(image)
        self._ports = ports
        self._threads = threads
        self._checks = checks
        self.share = share
        # The number after the last replica's stands for the sequence that all have in common.
        alike = [RandomState(seed, share.total) for _ in share.own]
        self.replicas = tuple(
            Engine(
                make_binder,
                image,
                constants,
                ports,
                variables=variables,
                threads=threads,
                checks=checks,
                replica=number,
                random=RandomState(seed, 0 if identical_seeds else number),
                alike=alike[number - share.first],
                counted=counted,
                watch=watch,
            )
            for number in share.own
        )
        own = [engine.random for engine in self.replicas]
        self.random = ReplicatedRandom(own, alike, share)
        self._stages: dict[str, tuple[_Stage, ...]] = {}
        self._walks: dict[str, Call] = {}
        for name in image.programs:
            if name != LOAD_PROGRAM and name.partition("/")[0] not in late:
                self._walk_of(name)

    @property
    def kind(self) -> str:
        """The engine that computes."""
        return self.replicas[0].kind

    @property
    def variables(self) -> dict[str, Array]:
        """The arrays of the variables of the first replica, by name."""
        return self.replicas[0].variables

    def run(self, program: str) -> None:
        """Run one program to its end, on all replicas.

        Raises:
            DeviceError: an instruction failed, or replicas disagree where they have to meet.
        """
        if program == LOAD_PROGRAM:
            for engine in self.replicas:
                engine.run(program)
            return
        with settings_of_numpy():
            self._walk_of(program)()

    def direct(
        self, program: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> None:
        """See `Engine`; replicas meet at the ports."""
        del program, inputs, outputs

    def profile(self, program: str) -> list[InstructionTime]:
        """Run one program and time each instruction of each replica; a block counts as one."""
        times: list[InstructionTime] = []
        with settings_of_numpy():
            self._walk_of(program)
            for stage in self._stages[program]:
                if isinstance(stage, Step):
                    times += timed((stage,), self._watch)
                    continue
                for engine, steps in zip(self.replicas, stage.steps, strict=True):
                    times += engine.binder.timed(steps)
        return times

    # -- binding ---------------------------------------------------------------------------------

    def _walk_of(self, program: str) -> Call:
        """The call that runs a program, which is bound once."""
        if program not in self._walks:
            self._stages[program] = tuple(self._bind(self._image.programs[program]))
            self._walks[program] = self._walk(self._stages[program])
        return self._walks[program]

    def _walk(self, stages: Iterable[_Stage]) -> Call:
        """The call that goes through ``stages``."""
        steps = [
            stage if isinstance(stage, Step) else Step(stage.call(self._threads), "", "Segment")
            for stage in stages
        ]
        return walker(steps, self._watch)

    def _bind(self, block: Block) -> Iterator[_Stage]:
        alone: list[Item] = []
        for item in block:
            if self._meets(item):
                yield from self._segment(alone)
                alone.clear()
                yield from self._meeting(item)
            else:
                alone.append(item)
        yield from self._segment(alone)

    def _meets(self, item: Item) -> bool:
        """True if replicas meet in ``item``."""
        return any(
            instruction.opcode in IO_OPCODES
            or isinstance(KERNELS[instruction.opcode], CollectiveKernel)
            for instruction in self._instructions((item,))
        )

    def _instructions(self, block: Block) -> Iterator[Instruction]:
        """All instructions that ``block`` runs, those of nested blocks and called programs too."""
        for item in block:
            if isinstance(item, Instruction):
                yield item
            elif isinstance(item, RepeatBlock):
                yield from self._instructions(item.body)
            elif isinstance(item, IfBlock):
                yield from self._instructions((*item.then_body, *item.else_body))
            else:
                yield from self._instructions(self._image.programs[item.program])

    def _segment(self, items: Sequence[Item]) -> Iterator[_Segment]:
        if not items:
            return
        block = tuple(items)
        shared = self._pays(block)
        for engine in self.replicas:
            engine.program.threads = 1 if shared else self._threads
        steps = tuple(engine.binder.block(block) for engine in self.replicas)
        walks = tuple(
            partial(_on_replica, number, engine.binder.walker(step))
            for number, engine, step in zip(self.share.own, self.replicas, steps, strict=True)
        )
        yield _Segment(steps, walks, shared)

    def _pays(self, block: Block) -> bool:
        """True if threads that each run some replicas gain more than the hand-over costs."""
        instructions = list(self._instructions(block))
        if self._threads < 2 or any(instruction.opcode in _ORDERED for instruction in instructions):
            return False
        slots = self._image.slots
        total = sum(
            prod(slots[index].shape) * slots[index].dtype.itemsize
            for instruction in instructions
            for index in (*instruction.inputs, *instruction.outputs)
            if index >= 0
        )
        return total >= max(_LONG_SEGMENT, _LONG_INSTRUCTION * len(instructions))

    # -- where replicas meet ---------------------------------------------------------------------

    def _meeting(self, item: Item) -> Iterator[_Stage]:
        if isinstance(item, CallBlock):
            yield from self._bind(self._image.programs[item.program])
        elif isinstance(item, Instruction):
            if self.replicas[0].program.writes_variables(item):
                yield Step(self._watch.touch, item.name, item.opcode)
            for call in self._calls(item):
                yield Step(call, item.name, item.opcode)
        elif isinstance(item, RepeatBlock):
            yield Step(self._repeat(item), item.name, "Repeat")
        else:
            yield Step(self._if(item), item.name, "If")

    def _calls(self, item: Instruction) -> tuple[Call, ...]:
        with naming(item):
            if item.opcode == "HostLoad":
                return self._loads(item)
            if item.opcode == "HostStore":
                sink = self._ports.outputs[str(item.attributes["stream"])]
                arrays = self._arrays(item.inputs[0])
                return tuple(call for array in arrays for call in store_calls(sink, array))
            bindings = [engine.binder.operands(item) for engine in self.replicas]
            return exchange_calls(item, bindings, self.share, self._watch, self._checks)

    def _loads(self, item: Instruction) -> tuple[Call, ...]:
        """Each replica takes a sample, or all get the same."""
        source: InputPort = self._ports.inputs[str(item.attributes["stream"])]
        first, *others = self._arrays(item.outputs[0])
        if item.attributes.get("broadcast"):
            copies = [partial(np.copyto, array, first) for array in others]
            return (*load_calls(source, first), *copies)
        return tuple(call for array in (first, *others) for call in load_calls(source, array))

    def _arrays(self, slot: int) -> list[Array]:
        return [engine.program.array(slot) for engine in self.replicas]

    def _scalars(self, slot: int) -> list[Array]:
        return [] if slot < 0 else [array.reshape(()) for array in self._arrays(slot)]

    def _repeat(self, block: RepeatBlock) -> Call:
        walk = self._walk(self._bind(block.body))
        conditions = self._scalars(block.condition_slot)
        counters = self._scalars(block.counter_slot)
        agree = agreement(block.name, self.share, self._watch)
        limits = self._scalars(block.count_slot)
        rows = self._rows(block)

        def repeat() -> None:
            count = int(agree(limits)) if limits else block.count
            iteration = 0
            try:
                while (count < 0 or iteration < count) and (not conditions or agree(conditions)):
                    for counter in counters:
                        counter[()] = iteration
                    walk()
                    iteration += 1
            except DeviceError as error:
                tell_iteration(error, block, iteration)
                raise
            for row in rows:
                row[0] += iteration

        return repeat

    def _rows(self, block: Item) -> list[list[int]]:
        """The rows in which the replicas count how often a block runs, if they do."""
        counts = [engine.program.counts for engine in self.replicas]
        return [counted.row(block) for counted in counts if counted]

    def _if(self, block: IfBlock) -> Call:
        conditions = self._scalars(block.condition_slot)
        then_walk = self._walk(self._bind(block.then_body))
        else_walk = self._walk(self._bind(block.else_body))
        agree = agreement(block.name, self.share, self._watch)

        def branch() -> None:
            if agree(conditions):
                then_walk()
            else:
                else_walk()

        rows = self._rows(block)
        return counting(branch, conditions[0], rows) if rows else branch
