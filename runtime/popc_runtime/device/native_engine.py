"""The native engine: runs what it can by native kernels, and the rest as the numpy engine does.

A program becomes one native program.  What no native kernel does is a call back into Python, to
the calls that the numpy engine would make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from popc_runtime.device.engine import IO_OPCODES, Engine
from popc_runtime.device.steps import InstructionTime, Step, cannot_be_bound, naming, tell_iteration
from popc_runtime.errors import DeviceError, PopcError
from popc_runtime.format import Block, DType, IfBlock, Instruction, RepeatBlock
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any
from popc_runtime.native import (
    Binding,
    Branch,
    Item,
    Library,
    Loop,
    NativeFailure,
    NativeProgram,
    Record,
    Space,
    encode,
)
from popc_runtime.native.packing import move_record
from popc_runtime.native.record import MAX_RANK
from popc_runtime.native.views import View, empty

__all__ = ["NativeEngine"]

# A loop around an instruction, and where the number of its iteration stands.
_Loops = tuple[tuple[RepeatBlock, View], ...]


@frozen
class _NativeStep(Step):
    """A step and its place in a native program: a record, or the call itself."""

    item: Item


class NativeEngine(Engine):
    """An engine whose programs run in the native library; see `Engine`."""

    def __init__(self, library: Library, *args: Any, **keywords: Any) -> None:
        self._library = library
        self._space = Space()
        self._loops: _Loops = ()
        self._calls_numpy = False
        super().__init__(*args, **keywords)

    # -- running ---------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """What computes: the processors that the kernels are for."""
        return self._library.variant

    def run(self, program: str) -> None:
        """See `Engine`."""
        walk = self._walk_of(program)  # which finds out whether it calls numpy
        with self.settings():
            walk()

    def settings(self) -> AbstractContextManager[None]:
        """Those of numpy, if it is called."""
        return super().settings() if self._calls_numpy else nullcontext()

    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """A native program of ``steps``."""
        return partial(self._run, self._program(steps))

    def _program(self, steps: Sequence[Step]) -> NativeProgram:
        items = [step.item for step in steps if isinstance(step, _NativeStep)]
        try:
            return NativeProgram(self._library, items, self._memory, self.threads)
        except NativeFailure as failure:
            if failure.owner is None:
                raise DeviceError(f"the program cannot be bound: {failure}") from failure
            step, _ = failure.owner
            raise cannot_be_bound(step.opcode, step.name, failure) from failure

    @staticmethod
    def _run(program: NativeProgram) -> None:
        try:
            program.run()
        except NativeFailure as failure:
            if failure.owner is None:  # before the first kernel
                raise DeviceError(f"the program cannot run: {failure}") from failure
            step, loops = failure.owner
            raise _device_error(step, loops, failure) from failure

    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """Run ``steps`` and time each; a block counts as one."""
        seconds = self._program(steps).seconds()
        return [
            InstructionTime(step.name, step.opcode, time, self.is_native(step))
            for step, time in zip(steps, seconds, strict=True)
        ]

    def is_native(self, step: Step) -> bool:
        """Whether a step runs without Python."""
        return isinstance(step, _NativeStep) and not callable(step.item)

    # -- binding ---------------------------------------------------------------------------------

    def bind_block(self, block: Block) -> tuple[Step, ...]:
        """The steps of ``block``, in order."""
        steps: list[Step] = []
        for item in block:
            if isinstance(item, Instruction):
                steps.extend(self._instruction(item))
            elif isinstance(item, RepeatBlock):
                steps.append(self._repeat(item))
            elif isinstance(item, IfBlock):
                steps.append(self._choice(item))
            else:
                steps.extend(self._steps_of(item.program))
        return tuple(steps)

    def _instruction(self, item: Instruction) -> list[Step]:
        self._space.reset()
        with naming(item):
            if item.opcode in IO_OPCODES:
                return self._transfer(item)
            record = encode(item.opcode, self._operands(item), self._library.numbers)
            return self._calls_of_numpy(item) if record is None else [self._native(item, record)]

    def _operands(self, item: Instruction) -> Binding:
        return Binding(
            self._memory.views(item.inputs),
            self._memory.views(item.outputs),
            self.dtypes(item.inputs),
            self.dtypes(item.outputs),
            item.attributes,
            self.finals(item.inputs),
            self._space,
            self.random_of(item),
            self._replica,
        )

    def _native(self, item: Instruction, record: Record) -> Step:
        step = Step(_nothing, item.name, item.opcode)
        return _NativeStep(*_of(step), record.owned((step, self._loops)))

    def _called(self, step: Step) -> Step:
        return _NativeStep(*_of(step), partial(_guarded, step, self._loops))

    def _transfer(self, item: Instruction) -> list[Step]:
        """A port's call, on contiguous memory, and a move from or to memory that is not."""
        stream, loads = str(item.attributes["stream"]), item.opcode == "HostLoad"
        view = self._memory.view(item.outputs[0] if loads else item.inputs[0])
        if not view.is_contiguous and view.ndim > MAX_RANK:
            return [self._called(step) for step in self._bind_instruction(item)]
        near = view if view.is_contiguous else self._space.take(view.shape, view.dtype)
        if loads:
            call = partial(self._ports.inputs[stream].load, near.memory())
        else:
            call = partial(self._ports.outputs[stream].store, near.memory())
        steps = [self._called(Step(call, item.name, item.opcode))]
        if near is not view:
            record = move_record(view, near) if loads else move_record(near, view)
            steps.insert(len(steps) if loads else 0, self._native(item, record))
        return steps

    def _calls_of_numpy(self, item: Instruction) -> list[Step]:
        """The calls that numpy's kernel makes, by native kernels if all are known to them."""
        from popc_runtime.native.translation import translate

        # On several threads numpy's calls may be others: results must not depend on that.
        steps = self._on_one_thread(item)
        records = [translate(step.call, self._library.numbers) for step in steps]
        if None not in records:
            return [self._native(item, record) for record in records if record is not None]
        if self.threads > 1:
            steps = self._bind_instruction(item)
        self._calls_numpy = True
        return [self._called(step) for step in steps]

    def _on_one_thread(self, item: Instruction) -> list[Step]:
        threads, self.threads = self.threads, 1
        try:
            with super().settings():
                return self._bind_instruction(item)
        finally:
            self.threads = threads

    def _repeat(self, block: RepeatBlock) -> Step:
        if self.counts:  # which Python does
            self._calls_numpy = True
            return self._called(Step(self._bind_repeat(block), block.name, "Repeat"))
        counter = self._view(block.counter_slot)
        if counter is None:  # errors tell it
            counter = empty((), DType.INT64)
        outer = self._loops
        self._loops = (*outer, (block, counter))
        body = self._items(block.body)
        self._loops = outer
        scalars = (self._view(slot) for slot in (block.count_slot, block.condition_slot))
        limit, condition = (0 if one is None else one.address for one in scalars)
        loop = Loop(body, block.count, limit, condition, counter.address, kept=(counter,))
        return _NativeStep(_nothing, block.name, "Repeat", loop)

    def _choice(self, block: IfBlock) -> Step:
        if self.counts:
            self._calls_numpy = True
            return self._called(Step(self._bind_if(block), block.name, "If"))
        condition = self._memory.view(block.condition_slot).address
        branch = Branch(condition, self._items(block.then_body), self._items(block.else_body))
        return _NativeStep(_nothing, block.name, "If", branch)

    def _view(self, slot: int) -> View | None:
        return None if slot < 0 else self._memory.view(slot)

    def _items(self, block: Block) -> list[Item]:
        return [step.item for step in self.bind_block(block) if isinstance(step, _NativeStep)]


def _of(step: Step) -> tuple[Callable[[], object], str, str]:
    return step.call, step.name, step.opcode


def _nothing() -> None:
    """The call of a step that is part of a native program only."""


def _guarded(step: Step, loops: _Loops) -> None:
    """Call ``step`` and let an error tell which instruction it was, and where in which loops."""
    try:
        step.call()
    except DeviceError as error:
        _tell_iterations(error, loops)
        raise
    except PopcError:
        raise
    except Exception as error:
        raise _device_error(step, loops, error) from error


def _device_error(step: Step, loops: _Loops, cause: Exception) -> DeviceError:
    error = DeviceError(f"{step.opcode} ({step.name}) failed: {cause}", subject=step.name)
    _tell_iterations(error, loops)
    return error


def _tell_iterations(error: DeviceError, loops: _Loops) -> None:
    for block, counter in reversed(loops):
        tell_iteration(error, block, counter.item())
